"""The worker's side of Apprise's process: start it, say a message, wait for the answer no longer than told, end it."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

_READ = 65_536
_KEPT_ENV = ("PATH", "LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")
"""No proxy, which would connect in our place to whatever it is told; no setting of ours, and no secret."""

_ENDED = "ended the process in which Apprise runs"


class NoAnswer(Exception):
    """None came; says why."""


class NotifyProcess:
    """One process for one sink; used by one thread at a time. Starting does not wait for it."""

    def __init__(self, urls: Sequence[str], networks: Sequence[str]) -> None:
        env = {name: os.environ[name] for name in _KEPT_ENV if name in os.environ}
        env |= {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, filter(None, sys.path))), "NETRC": os.devnull}
        self.pid = os.getpid()
        """Of the process that started it: no other may speak to it."""
        self._begun = b""
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-W", "ignore", "-m", "sinks.notify_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=env,
            cwd="/",
            start_new_session=True,  # a terminal's Ctrl-C ends the worker, and that ends it
        )
        # Through the pipe: arguments and environment of a process can be read by others.
        self._unsaid = _line({"urls": list(urls), "networks": list(networks)})
        os.set_blocking(self._input, False)
        os.set_blocking(self._output, False)

    @property
    def _input(self) -> int:
        return self._process.stdin.fileno()  # type: ignore[union-attr]

    @property
    def _output(self) -> int:
        return self._process.stdout.fileno()  # type: ignore[union-attr]

    def say(self, what: dict[str, Any]) -> None:
        """Queue a message; it is said while the answer is waited for."""
        self._unsaid += _line(what)

    def answer(self, until: float) -> dict[str, Any]:
        """Return the next answer; raises NoAnswer where none comes until that moment of the monotonic clock."""
        while b"\n" not in self._begun:
            left = until - time.monotonic()
            if left <= 0:
                raise NoAnswer("gave no answer in time")
            ready = select.poll()  # not select(), which knows no file above 1,023
            ready.register(self._output, select.POLLIN)
            if self._unsaid:
                ready.register(self._input, select.POLLOUT)
            for file, _ in ready.poll(left * 1000):
                self._say_on() if file == self._input else self._hear()
        line, _, self._begun = self._begun.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        """End it, whatever it is at."""
        if os.getpid() == self.pid:
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _say_on(self) -> None:
        try:
            self._unsaid = self._unsaid[os.write(self._input, self._unsaid) :]
        except BlockingIOError:
            return
        except OSError:
            raise NoAnswer(_ENDED) from None

    def _hear(self) -> None:
        data = os.read(self._output, _READ)
        if not data:
            raise NoAnswer(_ENDED)
        self._begun += data


def _line(what: dict[str, Any]) -> bytes:
    return json.dumps(what).encode() + b"\n"
