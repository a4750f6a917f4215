"""OneByOne: a sink with one method for one delivery."""

from __future__ import annotations

import pytest

from runtime_core.errors import UsageError
from sinks import Delivered, OneByOne, Rejected, Retry
from sinks.registry import Registry
from tests.sinks.deliveries import delivery


class Odd(OneByOne):
    """Takes even numbers, refuses 1, raises for 3."""

    kind = "odd"
    batch_size = 10

    def deliver_one(self, delivery):
        number = int(delivery.event_id, 16)
        if number == 3:
            raise OSError("https://hook.example/token-1234")
        return Rejected("odd") if number % 2 else Delivered(str(number))


def test_each_delivery_has_its_own_outcome():
    """A raise costs its own delivery a try; it is told by class and place, never by its text."""
    registry = Registry()
    registry.register(Odd)
    first, second, third, fourth = registry.build("odd", "o", {}).deliver([delivery(n) for n in (2, 1, 3, 4)])
    assert (first, second, fourth) == (Delivered("2"), Rejected("odd"), Delivered("4"))
    assert isinstance(third, Retry)
    assert third.reason.startswith(f"sink raised OSError, at {__file__}:")
    assert "token" not in repr(third)


class Without(OneByOne):
    kind = "without"


class Astray(OneByOne):
    kind = "astray"

    def deliver_one(self):  # type: ignore[override]
        return Delivered()


class Whole(OneByOne):
    kind = "whole"

    def deliver(self, batch):
        return [Delivered()] * len(batch)


@pytest.mark.parametrize(
    ("plugin", "reason"),
    [
        (Without, "Without has no method deliver_one(self, delivery)"),
        (Astray, "Astray.deliver_one takes no argument 'delivery'"),
    ],
)
def test_a_missing_method_is_refused_when_it_is_registered(plugin, reason):
    """The mistake names class, method and argument; it does not wait for a delivery."""
    with pytest.raises(UsageError) as caught:
        Registry().register(plugin)
    assert caught.value.reason == reason


def test_a_deliver_of_its_own_needs_no_deliver_one():
    """Whoever writes the batch method has it."""
    registry = Registry()
    registry.register(Whole)
    assert registry.build("whole", "w", {}).deliver([delivery(1)]) == [Delivered()]
