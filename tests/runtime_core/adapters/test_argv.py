"""Argv by the profile: one placeholder is one element, and no value decides which option it is (DESIGN §5, C25)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from runtime_core.adapters.argv import ELEMENT_LIMIT, ArgvFault, render
from runtime_core.manifest_models import Flag
from tests.runtime_core.adapters.wrapping import CASES, Wrapped, stdout

if TYPE_CHECKING:
    from runtime_core.manifest_models import CliElement

VALUES: list[str] = json.loads((CASES / "C25-values.json").read_text())
MORE = ["-5", "-o", "--x=y", "-\n", "a b", "a'b\"c", "$(id)", "`id`", ";id", "*", "", "é", "\u2028", "\u2010o", "a\nb"]
FORMS: dict[str, list[CliElement]] = {
    "element": ["{v}"],
    "group": [("-x", "{v}")],
    "bound": ["--x={v}"],
    "short": ["-x{v}"],
    "behind": ["--", "{v}"],
    "twice": ["{v}{v}"],
    "option": ["--{v}"],
}
WRITTEN = Path("/tmp/sense-c25")


def expected(form: str, value: str) -> list[str] | None:
    """Return the argv for a value in a form, None where it is refused; written without a look at the code."""
    text = {"bound": f"--x={value}", "short": f"-x{value}", "twice": value * 2, "option": f"--{value}"}.get(form, value)
    if form == "option" or (form in {"element", "group", "twice"} and text.startswith("-")):
        return None
    return {"group": ["-x", text], "behind": ["--", text]}.get(form, [text])


@pytest.mark.case("C25")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("value", [*VALUES, *MORE])
def test_a_value_is_data_or_the_call_is_refused(form: str, value: str):
    """In every form a value stands whole in one element, or is refused where it would be an option."""
    wanted = expected(form, value)
    if wanted is not None:
        assert render(FORMS[form], {"v": value}, confirmed=False) == wanted
    else:
        with pytest.raises(ArgvFault, match=r"^/v: would read as an option$"):
            render(FORMS[form], {"v": value}, confirmed=False)


@pytest.mark.case("C25")
@pytest.mark.parametrize("form", ["element", "group", "bound", "behind"])
def test_a_tool_sees_each_value_as_data(tmp_path: Path, form: str):
    """The stand-in prints each accepted value whole; a refused one starts nothing; no file appears."""
    world = Wrapped(tmp_path, "C25-standin.py")
    cli = [list(part) if isinstance(part, tuple) else part for part in FORMS[form]]
    WRITTEN.unlink(missing_ok=True)
    for value in VALUES:
        answer = world.run(cli, {"v": value})
        wanted = expected(form, value)
        if wanted is None:
            assert (answer.ok, answer.error) == (False, "invalid args: /v: would read as an option")
        else:
            assert json.loads(stdout(answer)) == wanted
    assert not WRITTEN.exists()
    assert list(world.jails.iterdir()) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "true"), (None, "null"), (7, "7"), (1.5, "1.5"), ([1, "a"], '[1,"a"]'), ({"a": "é"}, '{"a":"é"}')],
)
def test_what_is_no_text_stands_as_json(value: Any, text: str):
    """A value that is no text is one element too, as JSON writes it."""
    assert render(["x={v}"], {"v": value}, confirmed=False) == [f"x={text}"]


@pytest.mark.parametrize(
    ("value", "fits"), [(5, True), (0, True), (-5, False), (True, False), ("5", False), (5.0, False)]
)
def test_a_whole_number_may_stand_behind_a_dash(value: Any, fits: bool):
    """`-{limit}` takes a whole number, as `git log -5` does, and nothing else."""
    if fits:
        assert render(["-{n}"], {"n": value}, confirmed=False) == [f"-{value}"]
    else:
        with pytest.raises(ArgvFault, match="/n: would read as an option"):
            render(["-{n}"], {"n": value}, confirmed=False)


def test_a_group_is_left_out_whole_where_an_arg_is_absent():
    """A group stands in the argv with all of its elements or with none; a lone element must have its arg."""
    cli: list[CliElement] = ["log", ("-n", "{limit}"), ("--from={a}", "--to={b}")]
    assert render(cli, {"a": "1"}, confirmed=False) == ["log"]
    assert render(cli, {"a": "1", "b": "2", "limit": 3}, confirmed=False) == ["log", "-n", "3", "--from=1", "--to=2"]
    with pytest.raises(ArgvFault, match=r"^/v: is missing"):
        render(["{v}"], {}, confirmed=False)


@pytest.mark.parametrize("when", ["confirm", "apply"])
@pytest.mark.parametrize(
    ("host", "confirmed", "wanted"), [(False, True, ["--yes"]), (True, True, []), (False, False, [])]
)
def test_a_flag_of_the_confirmation_follows_the_gate(when: str, host: bool, confirmed: bool, wanted: list[str]):
    """A flag for confirm stands when the gate was satisfied, whatever args say; one for the runtime never does."""
    assert render([Flag(flag="--yes", when=when, host=host)], {when: True}, confirmed=confirmed) == wanted


@pytest.mark.parametrize("value", ["true", 1, "yes", [True], None])
def test_only_the_boolean_sets_a_flag(value: Any):
    """A flag stands for the boolean true alone."""
    cli = [Flag(flag="--all", when="all")]
    assert render(cli, {"all": value}, confirmed=False) == []
    assert render(cli, {"all": True}, confirmed=False) == ["--all"]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("a\0b", "/v: holds a NUL"),
        ("\ud800", "/v: holds half a character"),
        ("é" * 70_000, f"/v: over {ELEMENT_LIMIT}"),
    ],
)
def test_what_no_argv_can_hold_is_refused_by_name(value: str, reason: str):
    """A NUL, half a character and an element over the limit of Linux are refused, without the value."""
    with pytest.raises(ArgvFault) as refused:
        render(["x{v}"], {"v": value}, confirmed=False)
    assert str(refused.value).startswith(reason)
    assert len(str(refused.value)) < 60


def test_an_argv_over_the_limit_of_the_kernel_is_told(tmp_path: Path):
    """Elements that fit one by one and are too many together answer a reason, and no tool starts."""
    answer = Wrapped(tmp_path, "C25-standin.py").run(["x{v}"] * 30, {"v": "a" * 131_000})
    assert (answer.ok, answer.error) == (False, "not started: Argument list too long")
    largest = Wrapped(tmp_path, "C25-standin.py").run(["--", "{v}"], {"v": "a" * ELEMENT_LIMIT})
    assert len(json.loads(stdout(largest))[1]) == ELEMENT_LIMIT
