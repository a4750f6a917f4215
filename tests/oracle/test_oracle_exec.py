"""Small scenarios written by hand beside the text: envelopes, installs and reports."""

from tests.oracle.judge import expected
from tests.oracle.lint import lint
from tests.oracle.packs import read_pack
from tests.oracle.pool import GOOD, changed, composite

CAPABILITIES = ("verb.exec.read", "verb.exec.write", "pack.connect")


def exec_world(*cases, packs=("git", "mail"), without=(), operator=False, project="apollo", **sections):
    """The principal ana of acme in apollo with every grant but those `without`, each pack activated, none connected."""
    scenario = {
        "scenario": 1,
        "packs": [GOOD[pack_id][0] for pack_id in packs],
        "projects": {"apollo": "acme"},
        "principals": {"ana": {"tenant": "acme", "projects": ["apollo"], "operator": operator}},
        "grants": [
            {"principal": "ana", "capability": name, "pack": "*"} for name in CAPABILITIES if name not in without
        ],
        "activations": {
            pack_id: {"session": "ana", "pack": pack_id} | ({"project": project} if project else {})
            for pack_id in packs
        },
        "cases": list(cases),
    }
    return scenario | sections


def command(pack_id, verb_key, face="json", envelope=None, **args):
    case = {"activation": pack_id, "pack_id": pack_id, "verb_key": verb_key, "args": args, "face": face}
    return {"exec": case | ({"envelope": envelope} if envelope else {})}


def errors(scenario):
    return [result["error"] for result in expected(scenario) if "error" in result]


def test_confirm_is_the_boolean_of_either_name():
    """The names confirm and apply, as true, pass; the text `true` passes on the CLI face alone."""
    cases = (
        *(command("git", "git.commit", text="a"), command("git", "git.commit", text="a", confirm=True)),
        *(command("git", "git.commit", text="a", apply=True), command("git", "git.commit", text="a", confirm="true")),
        *(command("git", "git.commit", "cli", text="a", confirm="true"), command("git", "git.commit", confirm=1)),
        *(command("git", "git.commit", "cli", text="a", confirm="True"), command("git", "git.log", confirm="x")),
    )
    no = "confirm required"
    assert errors(exec_world(*cases)) == [no, None, None, no, None, no, no, None]


def test_a_connect_command_needs_both_grants_and_leaves_a_connection():
    """pack.connect is looked at first, verb.exec.write next; then the family is connected, also for its other pack."""
    connect, send = command("mail", "mail.connect"), command("cal", "list")
    packs = ("mail", "cal")
    assert errors(exec_world(connect, packs=packs, without=CAPABILITIES)) == ["denied: missing pack.connect"]
    assert errors(exec_world(connect, packs=packs, without=("verb.exec.write",))) == [
        "denied: missing verb.exec.write for mail.connect"
    ]
    results = expected(exec_world(send, connect, send, packs=packs))
    assert results == [
        {"ok": False, "error": "not connected: cal", "minted": False, "ran": False, "steps": []},
        {"ok": True, "error": None, "minted": False, "ran": True, "steps": ["mail.connect"]},
        {"ok": True, "error": None, "minted": True, "ran": True, "steps": ["list"]},
    ]


def test_the_first_refusal_of_the_pipeline_wins():
    """Each step of EXEC_STEPS in turn, as its reason is taken away."""
    wrong = command("notes", "wipe", extra="x")
    case = wrong | {"exec": {**wrong["exec"], "envelope": {"tenant": "bolt"}}}
    base = {"packs": ("notes",)}
    assert errors(exec_world(case, **base)) == ["refused: unknown_field"]
    steps = [{"step": {"disable": "ana"}}, {"step": {"revoke_session": "ana"}}]
    more = [{"step": {"deactivate": "notes"}}, {"step": {"remove": "notes"}}]
    unknown = command("notes", "nothing")
    rows = exec_world(wrong, steps[0], wrong, steps[1], wrong, unknown, more[0], unknown, more[1], unknown, **base)
    assert errors(rows) == [
        *("confirm required", "denied: principal disabled", "denied: session revoked", "unknown command: nothing"),
        *("pack not activated: notes", "pack not installed: notes"),
    ]
    assert errors(exec_world(command("notes", "wipe", confirm=True, extra="x"), **base)) == ["invalid args: …"]
    denied = "denied: missing verb.exec.write for notes.wipe"
    assert errors(exec_world(wrong, without=("verb.exec.write",), **base)) == [denied]
    leave = {"step": {"leave": {"principal": "ana", "project": "apollo"}}}
    assert errors(exec_world(leave, wrong, **base)) == ["denied: not a member of the project"]
    absent = "denied: privacy.land brain requires project_id"
    assert errors(exec_world(wrong, project=None, **base)) == [absent]


def test_planes_modes_and_workspaces():
    """Control needs an operator; mothership one or an elevation; local a workspace."""
    restart, beat = command("ops", "restart", confirm=True), command("mother", "read")
    control, mothership = (
        "denied: control plane requires an operator",
        "denied: mothership binding requires an operator",
    )
    elevation = {"principal": "ana", "capability": "mothership.elevate", "pack": "mother", "expires": "+1h"}
    assert errors(exec_world(restart, packs=("ops",), without=CAPABILITIES)) == [control]
    assert errors(exec_world(restart, packs=("ops",), operator=True)) == [None]
    assert errors(exec_world(beat, packs=("mother",))) == [mothership]
    assert errors(exec_world(beat, packs=("mother",), operator=True)) == ["not connected: mother"]
    rows = exec_world({"step": {"grant": elevation}}, beat, {"step": {"clock": "+3601s"}}, beat, packs=("mother",))
    assert errors(rows) == ["not connected: mother", mothership]
    local = "denied: privacy.land local requires a workspace"
    assert errors(exec_world(command("files", "stat"), packs=("files",), without=CAPABILITIES)) == [local]


def test_the_alias_is_read_alone():
    """surface_id stands for pack_id; both, or neither, are malformed."""
    alias, both, neither = {"pack_id": None, "surface_id": "git"}, {"surface_id": "git"}, {"pack_id": None}
    cases = [command("git", "git.log", envelope=envelope) for envelope in (alias, both, neither)]
    assert errors(exec_world(*cases)) == [None, "refused: malformed", "refused: malformed"]


def test_a_composite_runs_nothing_where_a_step_would_be_denied():
    """The pre-flight walks every step; the caller's confirm counts for all; leaf commands are what ran."""
    save = command("chain", "all", text="a", confirm=True)
    packs = ("git", "relay", "chain")
    ran = ["git.log", "git.commit"]
    assert expected(exec_world(save, packs=packs)) == [
        {"ok": True, "error": None, "minted": False, "ran": True, "steps": ran}
    ]
    only = [{"principal": "ana", "capability": "verb.exec.write", "pack": name} for name in ("relay", "chain")]
    read = {"principal": "ana", "capability": "verb.exec.read", "pack": "*"}
    assert expected(exec_world(save, packs=packs, grants=[*only, read])) == [
        {
            "ok": False,
            "error": "denied: missing verb.exec.write for git.commit",
            "minted": False,
            "ran": False,
            "steps": [],
        }
    ]
    off = {"step": {"deactivate": "git"}}
    assert errors(exec_world(off, save, packs=packs)) == ["pack not activated: git"]


def test_install_asks_for_the_plane_and_then_the_grant():
    """Control plane first, then pack.install, which a grant with no keys or of a project does not give."""
    case = {"install": {"principal": "ana", "pack": "ops"}}
    grant = {"principal": "ana", "capability": "pack.install", "pack": "ops"}
    missing = "denied: missing pack.install"
    assert errors(exec_world(case, packs=("ops",))) == ["denied: control plane requires an operator"]
    assert errors(exec_world(case, packs=("ops",), operator=True)) == [missing]
    for change, error in (({}, None), ({"keys": []}, missing), ({"project": "apollo"}, missing)):
        assert errors(exec_world(case, packs=("ops",), operator=True, grants=[grant | change])) == [error]


def test_the_report_says_what_nothing_but_confirm_or_args_could_refuse():
    """Installed, activated, connected and each command; all false for a pack that is not there."""
    case = {"available": {"principal": "ana", "pack": "mail"}}
    steps = [{"step": {"connect": "ana/mail"}}, {"step": {"remove": "mail"}}]
    results = expected(exec_world(case, steps[0], case, steps[1], case, without=("pack.connect",), project=None))
    report = {"installed": True, "activated": True}
    unconnected = {"mail.list": False, "mail.send": False, "mail.connect": False}
    assert results[0] == {**report, "connected": False, "executable": unconnected}
    connected = {"mail.list": True, "mail.send": True, "mail.connect": False}
    assert results[2] == {**report, "connected": True, "executable": connected}
    assert results[4] == {"installed": False, "activated": False, "connected": False, "executable": {}}


def test_a_composite_is_no_way_round_a_gate():
    """A weaker operation or confirm, a cycle, too deep a nest, a literal confirm and an unknown step are lint."""
    known = {"git": read_pack(GOOD["git"][0], {})}

    def kinds(operation, confirm, *steps):
        pack = composite("relay", {"relay.go": (operation, confirm, list(steps))}, {})
        return lint(pack["surface"], pack["policy"], known)

    commit = {"pack_id": "git", "verb_key": "git.commit", "args": {"text": "a"}}
    assert kinds("write", True, commit) == set()
    assert kinds("write", False, commit) == {"composite_escalation"}
    assert kinds("read", False, {**commit, "verb_key": "Apply"}) == {"composite_escalation"}
    assert kinds("write", True, *[commit] * 33) == {"composite_escalation"}
    assert kinds("write", True, {"verb_key": "relay.go", "args": {}}) == {"composite_escalation"}
    assert kinds("write", True, {**commit, "args": {"text": "a", "confirm": True}}) == {"reserved_arg"}
    assert kinds("write", True, {**commit, "args": {"text": "a", "confirm": {"$arg": "confirm"}}}) == set()
    assert kinds("write", True, {**commit, "verb_key": "git.push"}) == {"missing_verb"}


def test_four_composites_may_stand_over_each_other():
    """Exactly four deep is allowed, five is not."""
    known = {"git": read_pack(GOOD["git"][0], {})}
    below = {"pack_id": "git", "verb_key": "git.log", "args": {}}
    states = []
    for depth in range(1, 6):
        pack = composite(f"c{depth}", {"go": ("read", False, [below])}, {})
        pack = changed(pack, "surface", "verbs", "go", "summary", value=f"{depth} deep")
        known[f"c{depth}"] = read_pack(pack, known)
        states.append(known[f"c{depth}"]["kinds"])
        below = {"pack_id": f"c{depth}", "verb_key": "go", "args": {}}
    assert states == [set(), set(), set(), set(), {"composite_escalation"}]
