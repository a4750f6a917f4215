"""A loopback service that records what reaches it, and a world with one openapi pack that calls it."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any, NamedTuple

from runtime_core.adapters.openapi import OpenApiAdapter
from tests.runtime_core.adapters.acting import PUBLIC, Acting, files

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Event

    from runtime_core.envelope import ResultEnvelope

LOOPBACK = (ip_network("127.0.0.0/8"),)
KEY = "canary-key-4a17"
USER = {"mode": "user", "hub": "keyring", "headers": {"Authorization": "Bearer {secret}"}}


class Received(NamedTuple):
    """One request as it arrived."""

    line: str
    headers: dict[str, str]
    body: bytes


class Service(ThreadingHTTPServer):
    """Keeps every request; `answer` says what comes back: status, headers, body."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.received: list[Received] = []
        self.answer: Callable[[Received], tuple[int, dict[str, str], bytes]] = said({})
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def lines(self) -> list[str]:
        """The request lines, without the version of HTTP."""
        return [one.line.removesuffix(" HTTP/1.1") for one in self.received]

    def close(self) -> None:
        self.shutdown()
        self.thread.join()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Service

    def handle_one_request(self) -> None:
        self.raw_requestline = self.rfile.readline(65_537)
        if not self.raw_requestline or not self.parse_request():
            self.close_connection = True
            return
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        received = Received(self.requestline, dict(self.headers.items()), body)
        self.server.received.append(received)
        status, headers, raw = self.server.answer(received)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)
        self.close_connection = True

    def log_message(self, *args: Any) -> None:
        pass


def said(value: Any, status: int = 200, media: str = "application/json", **headers: str) -> Any:
    """Return an answer that is always the same: a JSON value, or bytes as they are."""
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return lambda _: (status, {"Content-Type": media, **headers}, raw)


def document(origin: str, paths: dict[str, Any], version: str = "3.1.0", **more: Any) -> dict[str, Any]:
    """Return a document with one server."""
    return {"openapi": version, "servers": [{"url": origin}], "paths": paths, **more}


def operation(method: str = "get", path: str = "/things", **fields: Any) -> dict[str, Any]:
    """Return the paths of a document with the one operation `act`."""
    return {path: {method: {"operationId": "act", "responses": {}, **fields}}}


def parameter(name: str, place: str, schema: Any = None, **more: Any) -> dict[str, Any]:
    """Return a declared parameter."""
    required = {"required": True} if place == "path" else {}
    return {"name": name, "in": place, **required, **({} if schema is None else {"schema": schema}), **more}


def json_body(schema: Any, **more: Any) -> dict[str, Any]:
    """Return a declared JSON request body."""
    return {"content": {"application/json": {"schema": schema}}, **more}


class Called:
    """Ana may do all of one openapi pack."""

    def __init__(self, networks: Any = LOOPBACK) -> None:
        self.cancelled: Event | None = None
        adapter = OpenApiAdapter(lambda _: self.cancelled, networks=networks)
        self.world = Acting({"openapi": adapter}, {"secret": KEY})
        self.world.activate("tools")
        self.world.grant("tools", "verb.exec.read", "verb.exec.write", "pack.connect")

    def run(
        self,
        found: dict[str, Any] | str,
        args: dict[str, Any] | None = None,
        *,
        binding: dict[str, Any] | None = None,
        verb: dict[str, Any] | None = None,
        operation: str = "write",
        deadline: int | None = None,
        **sandbox: Any,
    ) -> ResultEnvelope:
        """Run the command `tools.run`, which is the operation `act` of a document, through every step."""
        adapter = {"kind": "openapi", "document": found}
        verbs = {"tools.run": {"operationId": "act", "args": True, **(verb or {})}}
        more = {"binding": binding or PUBLIC, "sandbox": sandbox}
        self.world.install(files("tools", adapter, verbs, {"tools.run": operation}, **more))
        return self.world.run("tools", "tools.run", args, deadline=deadline)
