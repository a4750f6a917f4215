"""A keyring that a test can lock, lose and look into, and what is kept in it."""

from __future__ import annotations

import threading

from runtime_core.binding import Holder

ANA = Holder("acme", "ana", "pack:notes")
MATERIAL = "canary-material-5d1e"


class FakeKeyring:
    """A backend as the library has them."""

    def __init__(self):
        self.kept = {}
        self.locked = False
        self.answers = threading.Event()
        self.answers.set()

    def get_password(self, service, name):
        self._ask()
        return self.kept.get((service, name))

    def set_password(self, service, name, password):
        self._ask()
        self.kept[service, name] = password

    def delete_password(self, service, name):
        self._ask()
        del self.kept[service, name]

    def _ask(self):
        self.answers.wait()
        if self.locked:
            raise RuntimeError(f"locked, with {MATERIAL} in the text")
