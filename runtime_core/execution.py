"""EXEC_STEPS: the order in which one command is judged, run and recorded (§9.5, DESIGN §7 and §8).

    resolve_pack → resolve_activation → resolve_command → authenticate → require_capability → require_confirm
    → validate_args → preflight → require_audit → mint_binding → begin → run_adapter → audit

Each step is a function over one frozen `Call`; it answers the call with what it found, or with the refusal that ends
the walk. `audit` is the way out of every walk. Every Invoker comes through `execute`: the queue, the command line, the
Python API, and each step of a composite.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from runtime_core import errors
from runtime_core.audit import AuditRecord
from runtime_core.binding import Binding, HubUnavailable, NotConnected, connect_answer, holder_of, is_free
from runtime_core.envelope import ResultEnvelope
from runtime_core.errors import AuditUnavailable
from runtime_core.grants import Capability, Grant
from runtime_core.install import session_refusal
from runtime_core.lint_composite import DEPTH_LIMIT, STEPS_LIMIT
from runtime_core.pipeline import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from runtime_core.authority import Authority
    from runtime_core.envelope import Envelope
    from runtime_core.errors import Refusal
    from runtime_core.identity import Activation, Micros, Principal, Session
    from runtime_core.manifest_models import Verb
    from runtime_core.pack import Pack, PackRevision
    from runtime_core.policy import PolicyEntry
    from runtime_core.runtime import Runtime


class ExecFacts(NamedTuple):
    """What the door made of a request: who asks, within which scope, for what."""

    tenant: str
    session_id: str
    project_id: str | None
    """Selects among the session's own activations; grants nothing (DESIGN §8)."""
    envelope: Envelope
    request_id: str
    """Names the request in the audit; the same for every step of a composite."""
    deadline: Micros | None = None


class Command(NamedTuple):
    """A declared command with its policy entry (§1.3.command)."""

    key: str
    verb: Verb
    entry: PolicyEntry


class Call(NamedTuple):
    """One command at one moment, with the rows of one authority snapshot that its gates look at."""

    facts: ExecFacts
    now: Micros
    authority: Authority
    revision: PackRevision | None
    activation: Activation | None
    session: Session | None
    principal: Principal | None
    depth: int = 1
    """Composites around it, itself counted where it is one."""
    command: Command | None = None
    refused: Refused | None = None
    grant: Grant | None = None
    confirmed: bool = False
    """The gate was there and was satisfied."""
    binding: Binding | None = None
    began: bool = False
    """The audit has its `begin` line."""
    result: Any = None
    error: str | None = None
    """Why the adapter's command failed."""

    @property
    def pack(self) -> Pack:
        """The pack in force; only after `resolve_pack` has passed."""
        if self.revision is None:
            raise AssertionError("resolve_pack was skipped")
        return self.revision.pack

    @property
    def chosen(self) -> Command:
        """The command; only after `resolve_command` has passed."""
        if self.command is None:
            raise AssertionError("resolve_command was skipped")
        return self.command

    @property
    def project(self) -> str | None:
        """The project of a command of land brain, else None: what a project-scoped grant is looked at for."""
        brain = self.command is not None and self.command.entry.privacy.land == "brain"
        return self.activation.project_id if brain and self.activation is not None else None

    def envelope(self) -> ResultEnvelope:
        """Return the result envelope (§1.5.result); a denial is one too (§9.7.envelope)."""
        asked = self.facts.envelope
        error = self.error if self.refused is None else self.refused.text
        return ResultEnvelope(error is None, asked.pack_id, asked.verb_key, self.result, error)


def call(authority: Authority, facts: ExecFacts, now: Micros, depth: int = 1) -> Call:
    """Return the call with its rows; one that is missing is None, and the step it concerns refuses."""
    session = authority.session(facts.session_id)
    pack_id = facts.envelope.pack_id
    return Call(
        facts,
        now,
        authority,
        authority.revision(pack_id),
        authority.activation_of(facts.session_id, pack_id, facts.project_id),
        session,
        None if session is None else authority.principal(session.principal),
        depth,
    )


def stop(one: Call, refusal: Refusal, name: str = "") -> Call:
    """Return the call with a refusal of the table."""
    return one._replace(refused=Refused(refusal.text(name), refusal.step, refusal.clause))


def resolve_pack(one: Call, _: Runtime | None = None) -> Call:
    """The pack is installed in the session's tenant (§9.5.1)."""
    return stop(one, errors.PACK_NOT_INSTALLED, one.facts.envelope.pack_id) if one.revision is None else one


def resolve_activation(one: Call, _: Runtime | None = None) -> Call:
    """The pack is active on the session, for the project that was named (§9.5.1, §1.6.activate)."""
    standing = one.activation is not None and not one.activation.revoked
    return one if standing else stop(one, errors.PACK_NOT_ACTIVATED, one.facts.envelope.pack_id)


def resolve_command(one: Call, _: Runtime | None = None) -> Call:
    """The verb_key is a declared command with a policy entry (§1.3.command, §9.5.1)."""
    key = one.facts.envelope.verb_key
    verb, entry = one.pack.manifest.verbs.get(key), one.pack.policy.verbs.get(key)
    if verb is None or entry is None:
        return stop(one, errors.UNKNOWN_COMMAND, key)
    return one._replace(command=Command(key, verb, entry))


def authenticate(one: Call, _: Runtime | None = None) -> Call:
    """Session and principal stand; the scope of the command's land is there (§9.1, §9.2, §9.5.2)."""
    session, principal = one.session, one.principal
    if session is None:
        return stop(one, errors.SESSION_REVOKED)
    disabled = principal is None or principal.disabled
    refusal = session_refusal(revoked=session.revoked, expires_at=session.expires_at, disabled=disabled, now=one.now)
    refusal = refusal or _scope_refusal(one, session.principal)
    return one if refusal is None else stop(one, refusal)


def _scope_refusal(one: Call, principal: str) -> Refusal | None:
    land = one.chosen.entry.privacy.land
    activation = one.activation
    if land == "brain":
        if activation is None or activation.project_id is None:
            return errors.BRAIN_REQUIRES_PROJECT
        if principal not in one.authority.members(activation.project_id):
            return errors.NOT_A_MEMBER
    if one.pack.plane == "control" and not _is_operator(one):
        return errors.CONTROL_PLANE
    if land == "local" and (activation is None or activation.workspace is None):
        return errors.LOCAL_REQUIRES_WORKSPACE
    return None


def _is_operator(one: Call) -> bool:
    return one.principal is not None and one.principal.operator


def require_capability(one: Call, _: Runtime | None = None) -> Call:
    """A connect command needs pack.connect and verb.exec.write, in this order; then mothership (§9.4, §9.8)."""
    command = one.chosen
    if command.verb.connect and _grant(one, Capability.PACK_CONNECT) is None:
        return stop(one, errors.MISSING_PACK_CONNECT)
    reading = command.entry.operation == "read"
    grant = _grant(one, Capability.VERB_EXEC_READ if reading else Capability.VERB_EXEC_WRITE)
    if grant is None:
        refusal = errors.MISSING_EXEC_READ if reading else errors.MISSING_EXEC_WRITE
        return stop(one, refusal, _full_name(one))
    elevated = _is_operator(one) or _grant(one, Capability.MOTHERSHIP_ELEVATE) is not None
    if one.pack.manifest.binding.mode == "mothership" and not elevated:
        return stop(one, errors.MOTHERSHIP)
    return one._replace(grant=grant)


def _grant(one: Call, capability: Capability) -> Grant | None:
    if one.session is None:
        return None
    asked = one.facts.envelope
    return one.authority.grant(
        one.session.principal, capability.value, asked.pack_id, asked.verb_key, one.project, one.now
    )


def _full_name(one: Call) -> str:
    """Return `<pack>.<verb>`: the verb_key where it begins with the pack id already (DESIGN §7)."""
    asked = one.facts.envelope
    return asked.verb_key if asked.verb_key.startswith(f"{asked.pack_id}.") else f"{asked.pack_id}.{asked.verb_key}"


def require_confirm(one: Call, _: Runtime | None = None) -> Call:
    """A gated write carries the boolean true; refused before any mint and any adapter (§4.5.2, §4.5.3)."""
    if not one.chosen.entry.confirm:
        return one
    given = one.facts.envelope.says_confirm
    return one._replace(confirmed=True) if given else stop(one, errors.CONFIRM_REQUIRED)


def validate_args(one: Call, _: Runtime | None = None) -> Call:
    """The args fit the command's schema (DESIGN §5)."""
    reason = one.chosen.verb.args.check(one.facts.envelope.own_args)
    return one if reason is None else stop(one, errors.INVALID_ARGS, reason)


GATES: tuple[Callable[[Call], Call], ...] = (
    resolve_pack,
    resolve_activation,
    resolve_command,
    authenticate,
    require_capability,
    require_confirm,
)
"""§9.5 1 to 4: what is walked for every step of a composite before its first one runs."""


def judge(one: Call, gates: tuple[Callable[[Call], Call], ...] = GATES) -> Call:
    """Walk gates in order; the first refusal ends the walk."""
    for gate in gates:
        one = gate(one)
        if one.refused is not None:
            break
    return one


def step_calls(one: Call) -> list[Call]:
    """Return a composite's steps as calls, their args not filled in yet; empty for a command that is none.

    They act under the same session and project, and the caller's confirm counts for each (DESIGN §5).
    """
    confirm = {"confirm": True} if one.facts.envelope.says_confirm else {}
    found = []
    for step in one.chosen.verb.steps:
        envelope = type(one.facts.envelope)(step.pack_id or one.facts.envelope.pack_id, step.verb_key, dict(confirm))
        found.append(call(one.authority, one.facts._replace(envelope=envelope), one.now, one.depth + 1))
    return found


def refused_step(one: Call, judged: Callable[[Call], Call]) -> Refused | None:
    """Return the first refusal among a composite's steps, also inside composites among them; `judged` walks one."""
    waiting, seen = step_calls(one), 0
    while waiting:
        step = judged(waiting.pop(0))
        if step.refused is not None:
            return step.refused
        inner = step_calls(step)
        seen += 0 if inner else 1  # as lint counts: a composite is the commands it runs
        # Lint holds these limits at install; another pack's later revision may break them.
        if seen > STEPS_LIMIT or (inner and step.depth > DEPTH_LIMIT):
            return stop(step, errors.COMPOSITE_LIMITS, _full_name(one)).refused
        waiting = inner + waiting
    return None


def preflight(one: Call, _: Runtime | None = None) -> Call:
    """No step of a composite runs, and nothing is minted, while a later one would be denied (§9.5.no-skip)."""
    refused = refused_step(one, judge)
    return one if refused is None else one._replace(refused=refused)


def require_audit(one: Call, runtime: Runtime) -> Call:
    """While the audit cannot be written nothing runs, reads included (§9.6, DESIGN §9)."""
    try:
        runtime.audit.probe()
    except AuditUnavailable:
        return stop(one, errors.AUDIT_UNAVAILABLE)
    return one


def mint_binding(one: Call, runtime: Runtime) -> Call:
    """The hub gives the principal's credential, or the command does not run (§9.5.5, §1.6.connect)."""
    declared = one.pack.manifest.binding
    if is_free(one.pack) or one.chosen.verb.connect or one.session is None:
        return one._replace(binding=Binding(declared.mode, declared.hub, None, {}))
    hub = runtime.hubs.get(declared.hub)
    if hub is None:
        return stop(one, errors.BINDING_UNAVAILABLE, declared.hub)
    try:
        identity, fields = hub.mint(holder_of(one.facts.tenant, one.session.principal, one.pack))
    except NotConnected:
        return stop(one, errors.NOT_CONNECTED, one.pack.pack_id)
    except HubUnavailable:
        return stop(one, errors.BINDING_UNAVAILABLE, declared.hub)
    return one._replace(binding=Binding(declared.mode, declared.hub, identity, fields))


def begin(one: Call, runtime: Runtime) -> Call:
    """A write has its line before its effect: no line, no effect (§9.6.1, DESIGN §9)."""
    if one.chosen.entry.operation == "read":
        return one
    if not runtime.may_begin(one.facts.request_id):
        return stop(one, errors.INTERRUPTED)
    try:
        runtime.audit.append([exec_record(one, "exec.begin")])
    except AuditUnavailable:
        return stop(one, errors.AUDIT_UNAVAILABLE)
    return one._replace(began=True)


def run_adapter(one: Call, runtime: Runtime) -> Call:
    """Reach the world; a connect command's secret goes to the hub and no further (§9.5.6, DESIGN §5)."""
    ran = runtime.adapters[one.pack.manifest.adapter.kind].run(one, runtime)
    if one.chosen.verb.connect and ran.error is None:
        return _connected(one, ran.result, runtime)
    return one._replace(result=ran.result, error=ran.error)


def _connected(one: Call, answer: Any, runtime: Runtime) -> Call:
    credential = connect_answer(answer)
    if credential is None or one.session is None:
        return one._replace(error="the connect command answered no identity and secret")
    identity, fields = credential
    declared = one.pack.manifest.binding
    try:
        runtime.hubs[declared.hub].keep(holder_of(one.facts.tenant, one.session.principal, one.pack), identity, fields)
    except (HubUnavailable, KeyError):
        return stop(one, errors.BINDING_UNAVAILABLE, declared.hub)
    return one._replace(result={"identity": identity}, binding=Binding(declared.mode, declared.hub, identity, {}))


def audit(one: Call, runtime: Runtime) -> Call:
    """One line for every way out (§9.6). A read whose line cannot be written answers nothing; a refusal stands.

    Raises AuditUnavailable for a write that has begun: its outcome is then unknown, and must not be told as known.
    """
    try:
        runtime.audit.append([exec_record(one, "exec.end" if one.began else "exec")])
    except AuditUnavailable:
        if one.began:
            raise
        if one.refused is None:  # else the first refusal wins, as everywhere (DESIGN §7): nothing ran either way
            return stop(one, errors.AUDIT_UNAVAILABLE)._replace(result=None, error=None)
    return one


def exec_record(one: Call, action: str) -> AuditRecord:
    """Return the tuple of §9.6 for a call; never args or results."""
    asked = one.facts.envelope
    reason = one.error if one.refused is None else one.refused.text
    return AuditRecord(
        action=action,
        ok=reason is None,
        tenant=one.facts.tenant,
        principal=None if one.session is None else one.session.principal,
        project=None if one.activation is None else one.activation.project_id,
        binding=None if one.binding is None else one.binding.identity,
        pack_id=asked.pack_id,
        key=asked.verb_key,
        operation=None if one.command is None else one.command.entry.operation,
        subject=one.facts.request_id,
        reason=reason,
    )


EXEC_STEPS: tuple[Callable[..., Call], ...] = (
    *GATES,
    validate_args,
    preflight,
    require_audit,
    mint_binding,
    begin,
    run_adapter,
    audit,
)


def execute(runtime: Runtime, facts: ExecFacts, depth: int = 1) -> Call:
    """Walk EXEC_STEPS for one request under the newest authority. Raises AuditUnavailable as `audit` does."""
    one = call(runtime.authority(facts.tenant), facts, runtime.now(), depth)
    for step in EXEC_STEPS[:-1]:
        one = step(one, runtime)
        if one.refused is not None:
            break
    return audit(one, runtime)
