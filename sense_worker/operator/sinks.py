"""Sinks: where deliveries go."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from runtime_core.errors import Conflict
from sense_worker.operator.desk import Desk, need_principal, need_project, need_sink, sink_row
from sense_worker.operator.names import audience_of, plain_id
from sense_worker.operator.views import SinkView
from sense_worker.storage.ledger import Ledger
from sense_worker.storage.schema import ROUTE, SINK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sense_worker.operator.desk import Change


class Sinks(Desk):
    """Changes of a sink need an operator."""

    def add_sink(
        self, name: str, kind: str, *, options: Mapping[str, object] | None = None, audience: str = "tenant"
    ) -> SinkView:
        """Add a sink; its options are checked by its kind, which is opened once here where it is local.

        The same again changes nothing; raises Conflict.
        """
        plain_id("sink", name)
        shape, who = audience_of(audience)
        given = dict(options or {})
        self._registry.try_out(kind, name, given)
        with self._change("sink.add", name) as change:
            if shape == "principal":
                need_principal(change, str(who))
            elif shape == "project":
                need_project(change, str(who))
            there = sink_row(change, name)
            if there is not None:
                same = (there.kind, there.audience, there.audience_id) == (kind, shape, who)
                if not same or json.loads(self._vault.open(there.options)) != given:
                    raise Conflict("sink", f"{name!r} exists with another kind, audience or options", "remove it first")
                change.nothing = True
                return self._sink_view(there)
            row = {"tenant": change.acting.tenant, "name": name, "kind": kind, "audience": shape, "audience_id": who}
            sealed = self.seal(json.dumps(given, allow_nan=False))
            change.run(sa.insert(SINK).values(**row, options=sealed, created_at=change.now))
            lane = self._release(change, name)
            view = self._sink_view(sink_row(change, name))
        self._wake([lane])
        return view

    ensure_sink = add_sink

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
        lane = f"{change.acting.tenant}/{name}"
        Ledger(self._database).release_lane(change.connection, lane, change.now)
        return lane

    @staticmethod
    def _update(change: Change, name: str, **values: object) -> None:
        where = (SINK.c.tenant == change.acting.tenant, SINK.c.name == name)
        change.run(sa.update(SINK).where(*where).values(**values))

    def _sink_view(self, row: Any) -> SinkView:
        audience = row.audience if row.audience_id is None else f"{row.audience}:{row.audience_id}"
        options = json.loads(self._vault.open(row.options))
        moments = (row.created_at, row.paused_at, row.disabled_at, row.disabled_reason)
        fault = self._registry.fault(row.kind, options)
        return SinkView(row.name, row.kind, audience, tuple(sorted(options)), *moments, fault)
