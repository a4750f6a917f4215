"""Some sixty distinct packs, made once, so that whoever reads them may cache by their bytes."""

from typing import Any

Pack = dict[str, Any]

SHA = {
    "type": "object",
    "properties": {"sha": {"type": "string", "maxLength": 8}, "kind": {"enum": ["new", "old"]}},
    "required": ["sha"],
    "additionalProperties": False,
}
SIZED = {"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]}
TEXT_ARGS = {
    "type": "object",
    "properties": {"text": {"type": "string", "maxLength": 12}},
    "required": ["text"],
    "additionalProperties": False,
}

# Which data fits which trigger's schema, and which does not.
GOOD_DATA: dict[str, list[Pack]] = {
    "sha": [{"sha": "abc"}, {"sha": "abc", "kind": "new"}, {"sha": ""}],
    "sized": [{"size": 3}, {"size": -1, "tenant": "bolt"}, {"size": 2**53}],
    "any": [{}, {"principal": "eve", "tenant": "bolt"}, {"a": [1, {"b": None}]}, {"text": "grüße \U0001f30d"}],
}
BAD_DATA: dict[str, list[Pack]] = {
    "sha": [{}, {"sha": 1}, {"sha": "123456789"}, {"sha": "a", "x": 1}, {"sha": "a", "kind": "New"}, {"sha": None}],
    "sized": [{}, {"size": "3"}, {"size": True}, {"size": 1.5}],
    "any": [],
}
SCHEMAS: dict[str, Pack | None] = {"sha": SHA, "sized": SIZED, "any": None}

# verb_key: operation, land, and words: confirm, connect, args
Verbs = dict[str, tuple[str, str, str]]
# ref: land, name of its schema
Triggers = dict[str, tuple[str, str]]


def pack(
    pack_id: str, binding: str, triggers: Triggers, verbs: Verbs, plane: str = "runtime", family: str | None = None
) -> Pack:
    """An inline pack with the adapter wrap, or sense_only where it has no verbs."""
    mode, hub = binding.split("/")
    surface: Pack = {"id": pack_id, "version": "1.0.0", "title": pack_id, "plane": plane}
    if family is not None:
        surface["family"] = family
    surface["adapter"] = {"kind": "wrap", "bin": "tool"} if verbs else {"kind": "sense_only"}
    surface["binding"] = {"mode": mode, "hub": hub}
    if verbs:
        surface["sandbox"] = {"posture": "sandbox", "bins": ["tool"]}
    surface["verbs"] = {key: _verb(words) for key, (_, _, words) in verbs.items()}
    surface["stimulusTriggers"] = []
    for ref, (_, schema) in triggers.items():
        trigger: Pack = {"ref": ref, "summary": ref}
        if SCHEMAS[schema] is not None:
            trigger["data"] = SCHEMAS[schema]
        surface["stimulusTriggers"].append(trigger)
    policy: Pack = {"surface_id": pack_id, "version": 1, "verbs": {}, "stimuli": {}}
    for key, (operation, land, words) in verbs.items():
        policy["verbs"][key] = {"operation": operation, "privacy": {"land": land}}
        if "confirm" in words:
            policy["verbs"][key]["confirm"] = True
    for ref, (land, _) in triggers.items():
        policy["stimuli"][ref] = {"operation": "read", "privacy": {"land": land}}
    return {"surface": surface, "policy": policy}


def _verb(words: str) -> Pack:
    verb: Pack = {"summary": "a command", "cli": ["do"]}
    if "args" in words:
        verb = {"summary": "a command", "cli": ["do", "{text}"], "args": TEXT_ARGS}
    if "connect" in words:
        verb["connect"] = True
    return verb


def composite(pack_id: str, verbs: dict[str, tuple[str, bool, list[Pack]]], triggers: Triggers) -> Pack:
    """An inline pack whose commands run those of others: operation, confirm, steps."""
    result = pack(pack_id, "public/none", triggers, {})
    result["surface"]["adapter"] = {"kind": "composite"}
    for key, (operation, confirm, steps) in verbs.items():
        result["surface"]["verbs"][key] = {"summary": "several commands", "args": TEXT_ARGS, "steps": steps}
        result["policy"]["verbs"][key] = {"operation": operation, "privacy": {"land": "personal"}}
        if confirm:
            result["policy"]["verbs"][key]["confirm"] = True
    return result


def _step(pack_id: str, verb_key: str, **args: Any) -> Pack:
    return {"pack_id": pack_id, "verb_key": verb_key, "args": args}


def changed(source: Pack, file: str, *path: str, value: Any) -> Pack:
    """A copy of a pack with one value of one file set; the rest is shared."""
    result = dict(source)
    place = result
    for name in (file, *path[:-1]):
        place[name] = dict(place[name])
        place = place[name]
    place[path[-1]] = value
    return result


def dropped(source: Pack, file: str, *path: str) -> Pack:
    """A copy of a pack with one name of one file taken away."""
    result = changed(source, file, *path, value=None)
    place = result[file]
    for name in path[:-1]:
        place = place[name]
    del place[path[-1]]
    return result


PERSONAL, BRAIN, LOCAL = "personal", "brain", "local"

GIT = {
    "git.log": ("read", PERSONAL, ""),
    "git.show": ("read", BRAIN, "args"),
    "git.commit": ("write", PERSONAL, "confirm args"),
    "Apply": ("write", PERSONAL, "args"),
}
MAIL = {
    "mail.list": ("read", PERSONAL, ""),
    "mail.send": ("write", PERSONAL, "confirm args"),
    "mail.connect": ("write", PERSONAL, "connect"),
}
NOTES = {"create": ("write", BRAIN, "args"), "notes.list": ("read", BRAIN, ""), "wipe": ("write", BRAIN, "confirm")}
FILES = {"stat": ("read", LOCAL, ""), "put": ("write", LOCAL, "args")}
OPS = {"status": ("read", PERSONAL, ""), "restart": ("write", PERSONAL, "confirm")}
CAL = {"list": ("read", PERSONAL, ""), "cal.connect": ("write", PERSONAL, "connect confirm")}
MOTHER = {"read": ("read", PERSONAL, ""), "write": ("write", PERSONAL, "confirm")}
VAULT = {"open": ("read", PERSONAL, ""), "vault.join": ("write", BRAIN, "connect")}
FEED = {"item.new": (PERSONAL, "sha"), "item.shared": (BRAIN, "any"), "item.saved": (LOCAL, "sized")}


def _good() -> dict[str, list[Pack]]:
    """By pack id: the first as a world starts with it, then what may replace it."""
    commits: Triggers = {"commit.created": (PERSONAL, "sha"), "push": (PERSONAL, "any")}
    note: Triggers = {"note.added": (BRAIN, "any"), "note.gone": (BRAIN, "sized")}
    saved: Triggers = {"file.saved": (LOCAL, "sized"), "file.shared": (BRAIN, "any")}
    public, kept = "public/none", "user/keyring"
    git = pack("git", public, commits, GIT)
    return {
        "git": [
            git,
            pack("git", public, {"commit.created": (BRAIN, "sha"), "push": (PERSONAL, "any")}, GIT),
            pack("git", public, {"push": (PERSONAL, "any")}, GIT),
            pack("git", public, commits, {**GIT, "git.log": ("read", BRAIN, ""), "Apply": ("write", LOCAL, "confirm")}),
            changed(git, "surface", "x-note", value={"any": "thing"}),
        ],
        "mail": [
            pack(
                "mail", kept, {"new_item": (PERSONAL, "any"), "binding.degraded": (PERSONAL, "any")}, MAIL, family="o"
            ),
            pack("mail", kept, {"new_item": (LOCAL, "any"), "binding.degraded": (PERSONAL, "sized")}, MAIL, family="o"),
            pack("mail", kept, {"new_item": (PERSONAL, "any")}, dict(list(MAIL.items())[1:]), family="o"),
        ],
        "notes": [
            pack("notes", "public/public", note, NOTES),
            pack("notes", "public/public", {**note, "note.added": (PERSONAL, "sha")}, NOTES),
            pack("notes", "public/public", note, {**NOTES, "wipe": ("write", BRAIN, "")}),
            pack("notes", "public/public", {"note.gone": (BRAIN, "sized")}, NOTES),
        ],
        "files": [pack("files", public, saved, FILES), pack("files", public, {**saved, "tick": (LOCAL, "any")}, FILES)],
        "ops": [
            pack("ops", public, {"alert": (BRAIN, "any"), "deploy.done": (PERSONAL, "sha")}, OPS, plane="control"),
            pack("ops", public, {"alert": (PERSONAL, "any"), "deploy.done": (BRAIN, "sha")}, OPS, plane="control"),
        ],
        "cal": [pack("cal", kept, {"due": (PERSONAL, "any")}, CAL, family="o")],
        "mother": [
            pack("mother", "mothership/keyring", {"beat": (PERSONAL, "any")}, MOTHER),
            pack("mother", "mothership/keyring", {"beat": (BRAIN, "any")}, MOTHER),
        ],
        "vault": [pack("vault", "local/local-credential", {"opened": (BRAIN, "any")}, VAULT)],
        "feed": [
            pack("feed", public, FEED, {}),
            pack("feed", public, {**FEED, "item.new": (BRAIN, "sha")}, {}),
            pack("feed", public, {**FEED, "item.shared": (PERSONAL, "any")}, {}),
            pack("feed", public, {"item.saved": (LOCAL, "sized"), "item.other": (PERSONAL, "any")}, {}),
            changed(pack("feed", public, FEED, {}), "surface", "adapter", value="sense_only"),
        ],
        "relay": [
            composite(
                "relay",
                {
                    "relay.look": ("read", False, [_step("git", "git.log"), _step("git", "git.show", text="a")]),
                    "relay.save": ("write", True, [_step("git", "git.commit", text={"$arg": "text"})]),
                    "relay.put": (
                        "write",
                        True,
                        [_step("git", "git.log"), _step("git", "Apply", text={"$arg": "text"})],
                    ),
                },
                {"relay.done": (PERSONAL, "any")},
            )
        ],
        "chain": [
            composite(
                "chain",
                {
                    "all": (
                        "write",
                        True,
                        [_step("git", "git.log"), _step("relay", "relay.save", text={"$arg": "text"})],
                    )
                },
                {"chain.done": (BRAIN, "any")},
            )
        ],
    }


def _bad() -> dict[str, list[Pack]]:
    """By pack id: packs that fail, each in one way or two."""
    one = pack("bad", "public/none", {"bell": (PERSONAL, "any")}, {"ring": ("read", PERSONAL, "")})
    ring, bell = one["policy"]["verbs"]["ring"], one["policy"]["stimuli"]["bell"]
    verbs, surface_verbs = ("policy", "verbs"), ("surface", "verbs")
    a_verb, two_bells = one["surface"]["verbs"]["ring"], changed(one, "policy", "stimuli", "BELL", value=bell)
    bell_twice = [{"ref": "bell"}, {"ref": "bell"}]
    declares = {"type": "object", "properties": {"confirm": {"type": "boolean"}}}
    return {
        "bad": [
            dropped(one, *verbs, "ring"),
            changed(one, *verbs, "more", value=ring),
            dropped(one, "policy", "stimuli", "bell"),
            changed(one, "policy", "stimuli", "more", value={**bell, "operation": "write"}),
            changed(one, "policy", "stimuli", "bell", "operation", value="write"),
            changed(one, "policy", "surface_id", value="good"),
            changed(one, *verbs, "ring", "confirm", value=False),
            changed(one, "policy", "stimuli", "bell", "confirm", value=False),
            changed(one, *surface_verbs, "ring", "connect", value=True),
            changed(one, "surface", "users", value=["eve"]),
            changed(one, "surface", "allowedSubcommands", value=["log"]),
            changed(one, "surface", "adapter", "maxArgv", value=9),
            changed(one, "surface", "binding", "hub", value="keyring"),
            changed(one, *surface_verbs, "ring", "args", value=declares),
            changed(one, "surface", "stimulusTriggers", value=bell_twice),
            changed(changed(one, *verbs, "Ring", value=ring), *surface_verbs, "Ring", value=a_verb),
            changed(two_bells, "surface", "stimulusTriggers", value=[{"ref": "bell"}, {"ref": "BELL"}]),
            changed(one, "surface", "x-more", value={"deep": [{"roles": []}]}),
            changed(changed(one, *verbs, "more", value=ring), "policy", "surface_id", value="good"),
            changed(one, "policy", "version", value=True),
            changed(one, "policy", "version", value="1"),
            changed(one, "policy", "extra", value=1),
            changed(one, *verbs, "ring", "extra", value=1),
            changed(one, *verbs, "ring", "privacy", value=None),
            changed(one, *verbs, "ring", "privacy", "land", value="tenant"),
            changed(one, *verbs, "ring", "operation", value="Read"),
            changed(one, "policy", "stimuli", value=None),
            changed(one, "policy", "verbs", value=[]),
            {"surface": one["surface"], "policy_text": '{"surface_id":"bad","version":1,"version":1,"verbs":{}}'},
            {"surface": one["surface"], "policy_text": "[]"},
            changed(one, "surface", "plane", value="user"),
            changed(one, "surface", "adapter", value="shell"),
            changed(one, "surface", "binding", "mode", value="root"),
            changed(one, *surface_verbs, "ring", "run", value="anything"),
        ]
    }


GOOD = _good()
BAD = _bad()
# Replacements of good ones that fail: the revision in force stays.
BROKEN = {
    "git": changed(GOOD["git"][0], "policy", "verbs", "git.log", "operation", value="list"),
    "feed": changed(GOOD["feed"][0], "policy", "stimuli", "item.new", "operation", value="write"),
    "notes": dropped(GOOD["notes"][0], "policy", "stimuli", "note.gone"),
}
