"""The conformance kit: it passes a sound sink and each built-in one, and finds each broken one for its own reason."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sinks.conformance import Given, SinkConformance, kit
from tests.sinks import broken_sinks as broken

if TYPE_CHECKING:
    from collections.abc import Callable

TESTS = sorted(name for name, _ in inspect.getmembers(SinkConformance, inspect.isfunction) if name.startswith("test_"))

ONE = "test_every_delivery_gets_its_outcome"
BROKEN: list[tuple[type, str, str]] = [
    (broken.TakesAnything, "test_the_class_is_declared_right", "lets unknown options pass"),
    (broken.TakesAnything, "test_an_unknown_option_is_refused", "an option that does not exist is taken"),
    (broken.TakenName, "test_the_class_is_declared_right", "is a built-in sink's"),
    (broken.ConnectsWhenBuilt, "test_building_takes_nothing", "__init__ opened a file or connection"),
    (broken.StartsWhenBuilt, "test_building_takes_nothing", "or started a thread"),
    (broken.AnswersNothing, ONE, "answered NoneType"),
    (broken.AnswersTrue, ONE, "answered bool in the place of an outcome"),
    (broken.SkipsSome, ONE, "answered 1 outcomes for 5 deliveries"),
    (broken.Shuffles, "test_outcomes_stand_in_the_order_of_the_batch", "at the place of the delivery to reject"),
    (broken.SwallowsErrors, "test_retry_while_its_receiver_is_away", "answered Delivered(receipt=None) while its"),
    (broken.AnswersEarly, ONE, "are not where seen() looks"),
    (broken.RetriesForEver, "test_a_body_at_the_limit", "for a body of 256 KiB"),
    (broken.Exits, "test_odd_texts", "deliver raised SystemExit at "),
    (broken.KeepsRepeats, "test_a_repeat_adds_nothing", "handed over again is there 2 times"),
    (broken.RemembersInMemory, "test_a_repeat_after_opening_again_adds_nothing", "handed over again is there 2 times"),
    (broken.EmptiesTheBatch, "test_the_batch_stays_as_it_is", "deliver changed the batch"),
    (broken.TooSlow, "test_an_answer_within_the_deadline", "did not return within deadline_s = 0.3 s"),
    (broken.ForgesLines, "test_texts_forge_no_line", "began a line of its own"),
    (broken.BreaksOnLineBreaks, "test_odd_texts", "seen() raised JSONDecodeError at "),
    (broken.LeaksInReceipt, "test_secrets_leave_no_trace", "stands in an outcome"),
    (broken.LeaksInReason, "test_secrets_leave_no_trace", "stands in an outcome"),
    (broken.LeaksInLog, "test_secrets_leave_no_trace", "stands in a log record"),
    (broken.LeaksInRepr, "test_secrets_leave_no_trace", "stands in repr(sink)"),
    (broken.LeaksInException, "test_secrets_leave_no_trace", "stands in the text of an exception"),
    (broken.LeaksItsAddress, "test_secrets_leave_no_trace", "stands in an outcome"),
    (broken.PlainToken, "test_secrets_leave_no_trace", "stands in repr(sink.options)"),
    (broken.ClosesOnce, "test_closing_twice", "close raised AttributeError"),
    (broken.LeavesFilesOpen, "test_closing_lets_go", "1 more open files and 0 more threads"),
    (broken.BoundToItsThread, "test_another_thread_delivers", "raised RuntimeError"),
    (broken.HangsOnceClosed, "test_closing_while_delivering", "deliver did not return after close"),
    (broken.ParentsWorker, "test_a_forked_child", "in a forked child: "),
    (broken.SharesItsBuffer, "test_calls_at_once", "are not where seen() looks"),
    (broken.RefusesALand, "test_every_declared_land_is_taken", "for land local"),
    (broken.FollowsLinks, "test_nothing_beyond_the_workspace", "was followed, and something outside was written"),
    (broken.MakesTheWorkspace, "test_nothing_beyond_the_workspace", "for a workspace that is missing"),
]
"""What is broken, the test of the kit that has to find it, and what it says of it."""

LOOKS = (
    "test_a_body_at_the_limit",
    "test_a_forked_child",
    "test_a_repeat_adds_nothing",
    "test_a_repeat_after_opening_again_adds_nothing",
    "test_another_thread_delivers",
    "test_calls_at_once",
    "test_every_declared_land_is_taken",
    "test_every_delivery_gets_its_outcome",
    "test_odd_texts",
    "test_opening_again",
)
"""Tests of the kit that also look at what arrived."""


@pytest.fixture(autouse=True)
def _left():
    """Close what a broken sink left open, and end what it left running."""
    broken.RELEASED.clear()
    yield
    broken.RELEASED.set()
    while broken.LEFT:
        os.close(broken.LEFT.pop())


def found(make: Callable[[Path], Given], tmp_path: Path, capfd: Any, tests: list[str]) -> dict[str, str]:
    """Run tests of the kit; return what each that fails says."""
    said: dict[str, str] = {}
    for name in tests:
        folder = tmp_path / name
        folder.mkdir()
        one: Any = SinkConformance()
        one.make = make
        test = getattr(one, name)
        fixtures = {"tmp_path": folder, "capfd": capfd}
        try:
            test(**{wanted: fixtures[wanted] for wanted in inspect.signature(test).parameters})
        except unittest.SkipTest as skipped:
            said[name] = f"skipped: {skipped}"
        except Exception as error:  # noqa: BLE001 - what the kit raises is looked at
            said[name] = str(error)
        finally:
            one.teardown_method()
    return said


def given(sink: Any) -> Callable[[Path], Given]:
    """Return the `make` of a sink of broken_sinks."""

    def make(tmp_path: Path) -> Given:
        if issubclass(sink, broken.FollowsLinks):
            return Given(sink, workspace=tmp_path)
        file = tmp_path / "kept"
        return Given(
            sink,
            {"path": str(file), "token": broken.TOKEN, **sink.more},
            seen=lambda: broken.ids(file),
            away=lambda: broken.gone(file),
            hanging=lambda: broken.gone(file),
            rejected=lambda delivery: delivery._replace(principal="nobody"),
        )

    return make


def test_a_sound_sink_passes(tmp_path, capfd):
    """The pattern that the broken ones differ from fails no test and skips none."""
    assert found(given(broken.Sound), tmp_path, capfd, TESTS) == {}


def test_a_hook_that_is_missing_is_named(tmp_path, capfd):
    """With the class and its options alone every test passes or is skipped, and says for what."""
    told = found(lambda folder: Given(broken.Sound, {"path": str(folder / "kept")}), tmp_path, capfd, TESTS)
    hooks = {name: re.match(r"skipped: Given\(…, (\w+)=…\) is not given: .", said) for name, said in told.items()}
    assert {name: hook and hook[1] for name, hook in hooks.items()} == {
        **dict.fromkeys(LOOKS, "seen"),
        "test_an_answer_within_the_deadline": "hanging",
        "test_outcomes_stand_in_the_order_of_the_batch": "rejected",
        "test_retry_while_its_receiver_is_away": "away",
        "test_secrets_leave_no_trace": "secrets",
    }


@pytest.mark.filterwarnings("ignore:options that look like secrets")
@pytest.mark.parametrize(("sink", "test", "said"), BROKEN, ids=[f"{one[0].__name__}-{one[1]}" for one in BROKEN])
def test_a_broken_sink_is_found(tmp_path, capfd, monkeypatch, sink, test, said):
    """The test that is for it fails, and its message says what is wrong and what to do instead."""
    monkeypatch.setattr(kit, "SETTLE_S", 0.1)
    told = found(given(sink), tmp_path, capfd, [test])
    what, _, instead = told.get(test, "passed").partition("\n  -> ")
    assert said
    assert said in what
    assert instead


def test_a_secret_in_plain_text_is_warned_of(tmp_path):
    """By its name it looks like one: the author is told, and no test fails for it."""
    one: Any = SinkConformance()
    one.make = given(broken.PlainToken)
    with pytest.warns(UserWarning, match=r"^options that look like secrets are plain text: token; declare them as Sec"):
        one.test_secret_options_are_typed(tmp_path)


def test_a_kit_without_make_says_so(tmp_path):
    """The first thing an author sees is what is missing."""
    with pytest.raises(NotImplementedError, match=r"make\(self, tmp_path\) has to return a Given"):
        SinkConformance().test_closing_twice(tmp_path)


def test_the_kit_needs_no_pytest():
    """It is part of the distribution, whose users need not have it."""
    program = "import sys; sys.modules['pytest'] = None; import sinks.conformance"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[2])
