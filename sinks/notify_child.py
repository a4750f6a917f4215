"""The process in which Apprise runs: `python -m sinks.notify_child`, started by `sinks.notify_process`.

Apprise takes any service's address and connects where it leads, logs what it likes and says little of what went wrong.
Here it has a process of its own, so that every socket can be guarded, whatever library makes it (C46, C47), its words
go nowhere (C53), what hangs can be ended, and its import costs no worker 1.7 s.

One JSON object a line. Reads `{"urls": […], "networks": […]}` and answers `{"shown": […]}`, null for what is no
address of its service; then reads `{"at": index, "title": …, "body": …}` and answers `{"sent": true}`, or
`{"sent": false}` with `why`, `never` and `after`. It ends when its input ends.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import select
import threading
from ipaddress import ip_network
from typing import Any

from runtime_core.egress import Egress
from sinks.notify_target import target
from sinks.notify_watch import Watch
from sinks.protocol import NETWORKS_SETTING

_PARENT_CHECK_S = 5.0
_READ = 65_536


def main() -> None:
    """Serve one sink until its worker is gone."""
    answers = os.dup(1)
    # What Apprise or a plugin prints must not look like an answer.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    logging.disable(logging.CRITICAL)
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(os.getppid(), lines), daemon=True).start()
    given = json.loads(lines.get())
    watch = Watch(Egress([ip_network(one) for one in given["networks"]], NETWORKS_SETTING))
    watch.install()
    targets = [target(url, watch) for url in given["urls"]]
    _answer(answers, {"shown": [None if one is None else one.shown for one in targets]})
    while True:
        message = json.loads(lines.get())
        addressed = targets[message["at"]]
        if addressed is not None:
            _answer(answers, addressed.send(message["title"], message["body"]))


def _answer(answers: int, what: dict[str, Any]) -> None:
    os.write(answers, json.dumps(what).encode() + b"\n")


def _read(parent: int, lines: queue.SimpleQueue[bytes]) -> None:
    """Pass whole lines on; end the process with its input, and with its parent where others hold that open."""
    begun = b""
    while os.getppid() == parent:
        if not select.select([0], [], [], _PARENT_CHECK_S)[0]:
            continue
        data = os.read(0, _READ)
        if not data:
            break
        *whole, begun = (begun + data).split(b"\n")
        for line in whole:
            lines.put(line)
    os._exit(0)


if __name__ == "__main__":
    main()
