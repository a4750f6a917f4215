"""What a process needs to run commands, built once after the fork (DESIGN §2, §8)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from runtime_core.adapters.composite import CompositeAdapter
from runtime_core.adapters.openapi import OpenApiAdapter
from runtime_core.adapters.sandbox import Ceilings
from runtime_core.adapters.wrap import WrapAdapter
from runtime_core.binaries import binary_refusal
from runtime_core.runtime import Runtime
from sense_worker.exec.drain import ExecDrain
from sense_worker.exec.engine import Engine
from sense_worker.exec.group_audit import GroupAudit
from sense_worker.exec.run import Cancellations, Runner
from sense_worker.storage.engine import Database
from sense_worker.vault import Vault
from sense_worker.wiring import end_lost, redis_client

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from runtime_core.authority import Authority
    from sense_worker.ports import Ports
    from sense_worker.settings import Settings


def build_runtime(
    settings: Settings,
    ports: Ports,
    vault: Vault,
    cancelled: Callable[[str], threading.Event | None] = lambda _: None,
) -> Runtime:
    """Return the ports through which commands reach the world; `cancelled` answers the event that ends a run."""
    from sense_worker.hubs import build_hubs  # what a desktop's keyring loads is needed by the first command

    def authority(tenant: str) -> Authority:
        with ports.database.read() as connection:
            return ports.authorities.current(connection, [tenant])[tenant]

    return Runtime(
        authority=authority,
        audit=GroupAudit(ports.audit),
        hubs=build_hubs(settings, ports.database, vault),
        adapters={
            "wrap": _wrap(settings, cancelled),
            "openapi": OpenApiAdapter(cancelled, networks=settings.exec_networks),
            "composite": CompositeAdapter(),
        },
        now=lambda: time.time_ns() // 1000,
        barred=binary_refusal,
    )


def _wrap(settings: Settings, cancelled: Callable[[str], threading.Event | None]) -> WrapAdapter:
    most = Ceilings(
        settings.tool_memory_bytes, settings.tool_file_bytes, settings.tool_open_files, settings.tool_processes
    )
    return WrapAdapter(settings.home / "jails", cancelled, ceilings=most, hidden=(settings.home,))


def build_engine(settings: Settings, ports: Ports, vault: Vault, settle_s: float = 0.0) -> Engine:
    """Return this process's engine; its threads start with its first request. `settle_s`: see `Engine.settle`."""
    cancellations = Cancellations()
    runner = Runner(ports, build_runtime(settings, ports, vault, cancellations.of), vault, cancellations)
    client = redis_client(settings)
    relaxed = relaxed_database(settings)
    limits = {"keep_s": settings.exec_result_s, "settle_s": settle_s}
    return Engine(ports, relaxed, runner, vault, client, width=settings.exec_width, **limits)


def relaxed_database(settings: Settings) -> Database:
    """Return the database of requests with commits that wait for no disk."""
    return Database(settings.requests_url, on_lost=end_lost, durable=False)


def exec_drain(settings: Settings, ports: Ports) -> ExecDrain:
    """Return the drain of requests."""
    return ExecDrain(build_engine(settings, ports, Vault.load(settings)))
