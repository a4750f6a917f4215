"""The rows of a scenario (DESIGN §3, §10) as plain dictionaries, and the steps that change them."""

from typing import Any

from tests.oracle.packs import read_pack
from tests.oracle.reading import moment


def begin(scenario: dict[str, Any]) -> dict[str, Any]:
    """The state before the first case. Moments are microseconds since the epoch."""
    state: dict[str, Any] = {
        "now": moment(scenario.get("now", "2026-06-01T12:00:00Z"), 0),
        "home": {},  # principal id: the tenant of its entry
        "principals": {},  # (tenant, principal): its row
        "projects": {},  # project: tenant
        "members": set(),  # (project, principal)
        "sessions": {},
        "grants": [],
        "activations": {},
        "routes": {},
        "connected": set(),  # (tenant, principal, family)
        "installed": {},  # (tenant, pack_id): revision
        "offered": {},  # pack_id: the pack as last given, good or not
        "paused": set(),  # words of sinks
        "events": {},  # (tenant, publisher, pack_id, message id): body
        "cases": {},  # name: what is known of a sense case
    }
    _people(state, scenario)
    for entry in scenario.get("packs", []):
        offer(state, entry)
    for row in scenario.get("grants", []):
        grant(state, row)
    for name, row in scenario.get("activations", {}).items():
        activate(state, name, row)
    for name, row in scenario.get("routes", {}).items():
        tenant = state["home"][row["principal"]]
        state["routes"][name] = {**row, "tenant": tenant}
    for text in scenario.get("connected", []):
        connect(state, text)
    return state


def _people(state: dict[str, Any], scenario: dict[str, Any]) -> None:
    principals = scenario.get("principals", {})
    for name, row in principals.items():
        state["home"][name] = row["tenant"]
        state["principals"][row["tenant"], name] = {"operator": row.get("operator", False), "disabled": False}
        expires = moment(row["expires"], state["now"]) if "expires" in row else None
        state["sessions"][name] = {"principal": name, "tenant": row["tenant"], "expires": expires, "revoked": False}
        for project in row.get("projects", []):
            state["members"].add((project, name))
            state["projects"].setdefault(project, row["tenant"])
    state["projects"].update(scenario.get("projects", {}))
    for name, row in scenario.get("sessions", {}).items():
        tenant = row.get("tenant", state["home"][row["principal"]])
        here = (tenant, row["principal"])
        if here not in state["principals"]:
            operator = principals[row["principal"]].get("operator", False)
            state["principals"][here] = {"operator": operator, "disabled": False}
        expires = moment(row["expires"], state["now"]) if "expires" in row else None
        state["sessions"][name] = {
            "principal": row["principal"],
            "tenant": tenant,
            "expires": expires,
            "revoked": False,
        }


def tenants(state: dict[str, Any]) -> set[str]:
    """Every tenant that a row of the scenario names."""
    return {tenant for tenant, _ in state["principals"]} | set(state["projects"].values())


def offer(state: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    """Install a pack in every tenant; one that fails leaves what is in force."""
    known = {pack_id: pack for (_, pack_id), pack in state["installed"].items()}
    pack = read_pack(entry, known)
    state["offered"][pack["id"]] = pack
    if pack["state"] == "installed":
        for tenant in tenants(state):
            state["installed"][tenant, pack["id"]] = pack
    return pack


def grant(state: dict[str, Any], row: dict[str, Any]) -> None:
    """Add a grant; `given` is kept because a revoke takes the rows equal to it."""
    state["grants"].append(
        {
            "given": {"pack": "*", **row},
            "tenant": state["home"][row["principal"]],
            "principal": row["principal"],
            "capability": row["capability"],
            "pack": row.get("pack", "*"),
            "keys": row.get("keys"),
            "project": row.get("project"),
            "expires": moment(row["expires"], state["now"]) if "expires" in row else None,
        }
    )


def activate(state: dict[str, Any], name: str, row: dict[str, Any]) -> None:
    """Place a pack on a session; `principal: ana` means `session: ana`."""
    session = row.get("session", row.get("principal"))
    state["activations"][name] = {
        "session": session,
        "tenant": state["sessions"][session]["tenant"],
        "principal": state["sessions"][session]["principal"],
        "pack": row["pack"],
        "project": row.get("project"),
        "workspace": row.get("workspace", False),
        "revoked": False,
    }


def family(state: dict[str, Any], tenant: str, pack_id: str) -> str:
    """What a connection is kept under: the family of the pack, else the pack itself (1.4.family)."""
    pack = state["installed"].get((tenant, pack_id))
    if pack is not None and "family" in pack["surface"]:
        return "family " + str(pack["surface"]["family"])
    return "pack " + pack_id


def connect(state: dict[str, Any], text: str) -> None:
    """`ana/git`: ana's binding for the family of git is there."""
    principal, pack_id = text.split("/")
    tenant = state["home"][principal]
    state["connected"].add((tenant, principal, family(state, tenant, pack_id)))


def disconnect(state: dict[str, Any], text: str) -> None:
    """`ana/git`: ana's binding for the family of git is gone."""
    principal, pack_id = text.split("/")
    tenant = state["home"][principal]
    state["connected"].discard((tenant, principal, family(state, tenant, pack_id)))


def member(state: dict[str, Any], tenant: str, project: str, principal: str) -> bool:
    """Whether the project is the tenant's and the principal is in it now."""
    return state["projects"].get(project) == tenant and (project, principal) in state["members"]


def granted(
    state: dict[str, Any],
    who: tuple[str, str],
    capability: str,
    pack_id: str,
    key: str | None = None,
    project: str | None = None,
) -> bool:
    """Whether a grant matches now (DESIGN §3). `project`: of the activation, and only where land is brain."""
    for row in state["grants"]:
        if (row["tenant"], row["principal"]) != who or row["capability"] != capability:
            continue
        if row["pack"] not in ("*", pack_id):
            continue
        if row["keys"] is not None and key not in row["keys"]:
            continue
        if row["project"] is not None and row["project"] != project:
            continue
        if row["expires"] is not None and state["now"] >= row["expires"]:
            continue
        return True
    return False


def apply_step(state: dict[str, Any], step: dict[str, Any]) -> None:
    """One step of DESIGN §10, by its word."""
    ((word, value),) = step.items()
    if word == "grant":
        grant(state, value)
    elif word == "revoke":
        state["grants"] = [row for row in state["grants"] if row["given"] != {"pack": "*", **value}]
    elif word == "join":
        state["members"].add((value["project"], value["principal"]))
    elif word == "leave":
        state["members"].discard((value["project"], value["principal"]))
    elif word == "activate":
        activate(state, value["name"], value)
    elif word == "connect":
        connect(state, value)
    elif word == "disconnect":
        disconnect(state, value)
    elif word == "clock":
        state["now"] = moment(value, state["now"])
    elif word == "replace":
        offer(state, value)
    else:
        _switch(state, word, value)


def _switch(state: dict[str, Any], word: str, value: str) -> None:
    if word == "deactivate":
        state["activations"][value]["revoked"] = True
    elif word in ("disable", "enable"):
        for (_, principal), row in state["principals"].items():
            if principal == value:
                row["disabled"] = word == "disable"
    elif word == "revoke_session":
        state["sessions"][value]["revoked"] = True
    elif word == "pause":
        state["paused"].add(value)
    elif word == "resume":
        state["paused"].discard(value)
    elif word == "remove":
        for tenant in tenants(state):
            state["installed"].pop((tenant, value), None)
    else:
        raise ValueError(f"the oracle does not know the step {word}")
