"""Sinks: where deliveries go."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from runtime_core.errors import Conflict, UsageError
from sense_worker.operator.desk import Desk, know_sink, need_principal, need_project, need_sink, sink_row
from sense_worker.operator.names import audience_of, plain_id
from sense_worker.operator.views import RotatedSink, SinkDetail, SinkView
from sense_worker.storage.lanes import lane_of
from sense_worker.storage.ledger import Ledger
from sense_worker.storage.schema import ROUTE, SINK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sense_worker.operator.desk import Change
    from sinks.optional import Renewed


class Sinks(Desk):
    """Changes of a sink need an operator."""

    def add_sink(
        self, name: str, kind: str, *, options: Mapping[str, object] | None = None, audience: str = "tenant"
    ) -> SinkView:
        """Add a sink; its options are checked by its kind, which is opened once here where it is local.

        A kind that signs gets a secret where none is given; the answer tells it. The same again changes nothing, also
        where the secret was rotated since. Raises UsageError, Conflict.
        """
        plain_id("sink", name)
        shape, who = audience_of(audience)
        given = dict(options or {})
        made = self._first_secret(kind, given)
        ready = given if made is None else made.options
        self._registry.try_out(kind, name, ready)
        with self._change("sink.add", name) as change:
            if shape == "principal":
                need_principal(change, str(who))
            elif shape == "project":
                need_project(change, str(who))
            there = sink_row(change, name)
            if there is not None:
                same = (there.kind, there.audience, there.audience_id) == (kind, shape, who)
                kept = self._options(there)
                own = () if made is None else self._registry.own_secrets(kind)
                if not same or {key: value for key, value in kept.items() if key not in own} != given:
                    raise Conflict("sink", f"{name!r} exists with another kind, audience or options", "remove it first")
                change.nothing = True
                return self._sink_view(there)
            row = {"tenant": change.acting.tenant, "name": name, "kind": kind, "audience": shape, "audience_id": who}
            change.run(sa.insert(SINK).values(**row, options=self._sealed(ready), created_at=change.now))
            lane = self._release(change, name)
            view = self._sink_view(sink_row(change, name))
        self._wake([lane])
        return view if made is None else replace(view, secret=made.secret)

    ensure_sink = add_sink

    def set_sink(self, name: str, options: Mapping[str, object]) -> SinkView:
        """Change some options of a sink; None takes one back to its default. What is waiting goes on with the new ones.

        Raises NotFound, and UsageError as `add_sink` does.
        """
        with self._reading() as (connection, acting):
            row = know_sink(connection, acting.tenant, name)
        self._need_current(self._registry.own_secrets(row.kind), self._merged(row, options))
        self._registry.try_out(row.kind, name, self._merged(row, options))
        with self._change("sink.set", name) as change:
            row = need_sink(change, name)
            merged = self._merged(row, options)
            if merged == self._options(row):
                change.nothing = True
                return self._sink_view(row)
            self._registry.build(row.kind, name, merged)  # again: another change may have come in between
            self._update(change, name, options=self._sealed(merged))
            change.subject = f"{name} {' '.join(sorted(options))}"
            lane = self._release(change, name)
            view = self._sink_view(sink_row(change, name))
        self._wake([lane])
        return view

    def rotate_sink(self, name: str, *, overlap_s: float | None = None) -> RotatedSink:
        """Give a sink a new secret; the one before signs too for `overlap_s` seconds (None: the setting).

        Earlier ones sign until their own overlap ends, so that a receiver may follow two rotations in a row. Raises
        NotFound; UsageError for a kind that signs with no secret, or an overlap that is none.
        """
        overlap = self._overlap_s(overlap_s)
        with self._change("sink.rotate", name) as change:
            row = need_sink(change, name)
            until = change.now + int(overlap * 1e6)
            made = self._registry.renew(row.kind, self._options(row), change.now, until)
            self._registry.build(row.kind, name, made.options)
            self._update(change, name, options=self._sealed(made.options))
            change.subject = f"{name} overlap {overlap:g} s"
        return RotatedSink(name, row.kind, until if overlap else None, made.secret)

    def show_sink(self, name: str) -> SinkDetail:
        """Return a sink with its options, secrets masked. Raises NotFound."""
        with self._reading() as (connection, acting):
            row = know_sink(connection, acting.tenant, name)
        view = self._sink_view(row)
        moments = (view.created_at, view.paused_at, view.disabled_at, view.disabled_reason)
        return SinkDetail(
            name, view.kind, view.audience, self._registry.shown(row.kind, self._options(row)), *moments, view.fault
        )

    def masked_options(self, kind: str) -> frozenset[str]:
        """Return the options of a kind whose values are secrets."""
        return self._registry.masked_options(kind)

    def list_sinks(self) -> list[SinkView]:
        """Return the tenant's sinks by name."""
        with self._reading() as (connection, acting):
            rows = connection.execute(sa.select(SINK).where(SINK.c.tenant == acting.tenant).order_by(SINK.c.name))
            return [self._sink_view(row) for row in rows]

    def pause_sink(self, name: str) -> SinkView:
        """Pause a sink: its deliveries are held until it is resumed."""
        with self._change("sink.pause", name) as change:
            row = need_sink(change, name)
            if row.paused_at is not None:
                change.nothing = True
            else:
                self._update(change, name, paused_at=change.now)
            return self._sink_view(sink_row(change, name))

    def resume_sink(self, name: str) -> SinkView:
        """Resume a sink that was paused, or disabled because it said stop; what was held goes on at once."""
        with self._change("sink.resume", name) as change:
            row = need_sink(change, name)
            if row.paused_at is None and row.disabled_at is None:
                change.nothing = True
            else:
                self._update(change, name, paused_at=None, disabled_at=None, disabled_reason=None)
            lane = self._release(change, name)
            view = self._sink_view(sink_row(change, name))
        self._wake([lane])
        return view

    def remove_sink(self, name: str) -> SinkView:
        """Remove a sink that no route names. Raises Conflict naming the routes that do."""
        r = ROUTE.c
        with self._change("sink.remove", name) as change:
            row = need_sink(change, name)
            query = sa.select(r.id).where(r.tenant == change.acting.tenant, r.sink == name, r.removed_at.is_(None))
            routes = list(change.connection.scalars(query.order_by(r.id)))
            if routes:
                shown = ", ".join(routes[:5]) + (f" and {len(routes) - 5} more" if len(routes) > 5 else "")  # noqa: PLR2004
                raise Conflict("sink", f"{name!r} is named by {shown}", "remove the routes first")
            change.run(sa.delete(SINK).where(SINK.c.tenant == change.acting.tenant, SINK.c.name == name))
            return self._sink_view(row)

    def _release(self, change: Change, name: str) -> str:
        lane = lane_of(change.acting.tenant, name)
        Ledger(self._database).release_lane(change.connection, lane, change.now)
        return lane

    def _first_secret(self, kind: str, given: Mapping[str, object]) -> Renewed | None:
        own = self._registry.own_secrets(kind)
        self._need_current(own, given)
        return None if not own or any(name in given for name in own) else self._registry.renew(kind, given, 0, 0)

    @staticmethod
    def _need_current(own: Sequence[str], given: Mapping[str, object]) -> None:
        """Raise UsageError for secrets that were replaced (`own` but its first) without the one that signs now."""
        for name in own[1:]:
            if name in given and own[0] not in given:
                why = f"holds what {own[0]} has replaced, and there is no {own[0]}"
                raise UsageError(f"options.{name}", why, f"give {own[0]} too, or neither: then one is made")

    def _options(self, row: Any) -> dict[str, Any]:
        options: dict[str, Any] = json.loads(self._vault.open(row.options))
        return options

    def _merged(self, row: Any, changes: Mapping[str, object]) -> dict[str, Any]:
        merged = {**self._options(row), **changes}
        return {name: value for name, value in merged.items() if value is not None}

    def _sealed(self, options: Mapping[str, object]) -> bytes:
        return self.seal(json.dumps(dict(options), allow_nan=False))

    @staticmethod
    def _update(change: Change, name: str, **values: object) -> None:
        where = (SINK.c.tenant == change.acting.tenant, SINK.c.name == name)
        change.run(sa.update(SINK).where(*where).values(**values))

    def _sink_view(self, row: Any) -> SinkView:
        audience = row.audience if row.audience_id is None else f"{row.audience}:{row.audience_id}"
        options = self._options(row)
        moments = (row.created_at, row.paused_at, row.disabled_at, row.disabled_reason)
        fault = self._registry.fault(row.kind, options)
        note = None if fault else self._registry.note(row.kind, options)
        return SinkView(row.name, row.kind, audience, tuple(sorted(options)), *moments, fault, note)
