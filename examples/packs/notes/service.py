#!/usr/bin/env python3
"""The service that the notes pack calls: notes in memory, on loopback, for trying the pack.

    service.py [PORT]                                       8765 unless given; 0 takes a free one

It prints its address and a pairing code, which `notes.connect` exchanges for a key.
"""

from __future__ import annotations

import itertools
import json
import secrets
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

BODY_LIMIT = 256 * 1024
LIST_LIMIT = 100


class Service(ThreadingHTTPServer):
    """Holds the notes and the keys of those who are connected."""

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.code = secrets.token_hex(4)
        self.keys: dict[str, str] = {}
        self.notes: dict[str, dict[str, Any]] = {}
        self.numbers = itertools.count(1)
        self.lock = threading.Lock()

    @property
    def origin(self) -> str:
        """Return scheme, host and port."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    """Answers one request; everything but `POST /v1/keys` wants a key."""

    server: Service

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_DELETE(self) -> None:
        self._answer("DELETE")

    def _answer(self, method: str) -> None:
        address = urlsplit(self.path)
        body = self.rfile.read(min(int(self.headers.get("Content-Length", 0)), BODY_LIMIT))
        route = tuple(unquote(part) for part in address.path.split("/")[1:])
        with self.server.lock:
            status, answer = self._routed(method, route, parse_qs(address.query), json.loads(body or b"{}"))
        raw = b"" if answer is None else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def _routed(
        self, method: str, route: tuple[str, ...], query: dict[str, list[str]], body: dict[str, Any]
    ) -> tuple[int, Any]:
        if (method, route) == ("POST", ("v1", "keys")):
            return self._key(body)
        owner = self.server.keys.get(self.headers.get("Authorization", "").removeprefix("Bearer "))
        if owner is None:
            return 401, {"error": "who are you?"}
        notes = self.server.notes
        match method, route:
            case "GET", ("v1", "notes"):
                tags = set(query.get("tag", []))
                chosen = [one for one in reversed(notes.values()) if not tags or tags & set(one["tags"])]
                return 200, {"notes": chosen[: int(query.get("limit", [LIST_LIMIT])[0])]}
            case "POST", ("v1", "notes"):
                number = f"n{next(self.server.numbers)}"
                told = {"title": body["title"], "text": body.get("text", ""), "tags": body.get("tags", [])}
                notes[number] = {"id": number, "by": owner, **told}
                return 201, notes[number]
            case "GET", ("v1", "notes", number) if number in notes:
                return 200, notes[number]
            case "DELETE", ("v1", "notes", number) if number in notes:
                del notes[number]
                return 204, None
        return 404, {"error": "no such thing"}

    def _key(self, body: dict[str, Any]) -> tuple[int, Any]:
        if not secrets.compare_digest(str(body.get("code")), self.server.code):
            return 403, {"error": "not the pairing code"}
        key = secrets.token_urlsafe(24)
        self.server.keys[key] = str(body["name"])
        return 201, {"identity": f"{body['name']}@notes", "secret": key}

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        """Say nothing: a request line may hold what somebody wrote."""


def main(arguments: list[str]) -> int:
    """Serve until interrupted."""
    with Service(int(arguments[0]) if arguments else 8765) as service:
        print(f"{service.origin}/v1, pairing code {service.code}", flush=True)
        try:
            service.serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
