"""The command line as a whole: help, examples, failures, exit codes."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from runtime_core.errors import (
    Conflict,
    Denied,
    LedgerBusy,
    LintIssue,
    NotFound,
    PackLintError,
    SettingsError,
    UsageError,
)
from sense_worker.cli import main, running

HEAVY = {"alembic", "celery", "cryptography", "jsonschema_rs", "pydantic", "redis", "sqlalchemy", "structlog"}


def leaves(command, path=()):
    """Every command that does something, with its path."""
    for name, inner in getattr(command, "commands", {}).items():
        if hasattr(inner, "commands"):
            yield from leaves(inner, (*path, name))
        else:
            yield (*path, name), inner


COMMAND = main.command()
LEAVES = dict(leaves(COMMAND))


EXPECTED = """
    init up worker demo status health version publish explain activate activations rotate deactivate check schema
    exec connect disconnect availability doctor
    pack-new pack-lint pack-install pack-list pack-show pack-remove
    principal-add principal-list principal-disable principal-enable
    session-create session-list session-rotate session-revoke
    project-add project-add-member project-remove-member project-list
    grant-add grant-revoke grant-list
    sink-new sink-add sink-list sink-show sink-set sink-rotate sink-test sink-pause sink-resume sink-remove
    route-add route-list route-remove route-test
    deliveries-list deliveries-show deliveries-replay dead-list dead-show audit-tail audit-verify
    inbox-list inbox-counts inbox-see inbox-read inbox-unread inbox-archive inbox-unarchive inbox-snooze inbox-wake
    inbox-prune
"""
SPACED = {"project-add-member": "project add-member", "project-remove-member": "project remove-member"}


def test_the_commands_are_those_of_the_manual():
    """The set of commands is a contract: one that goes or appears is a decision."""
    actual = {" ".join(path) for path in LEAVES}

    expected = {SPACED.get(name, name.replace("-", " ")) for name in EXPECTED.split()}
    assert actual == expected


@pytest.mark.parametrize("path", sorted(LEAVES), ids=" ".join)
def test_the_example_of_a_command_is_one_that_its_parser_takes(path, monkeypatch):
    """Every command's help ends with an example, and the example is a call of that command with valid arguments."""
    entered = []
    monkeypatch.setattr(LEAVES[path], "callback", lambda **_given: entered.append(path))
    program, *arguments = shlex.split((LEAVES[path].epilog or "").removeprefix("Example:"))

    COMMAND.main(args=arguments, prog_name="sense-worker", standalone_mode=False, obj=main.Invocation())

    assert (program, tuple(arguments[: len(path)]), entered) == ("sense-worker", path, [path])


@pytest.mark.parametrize("path", sorted(LEAVES), ids=" ".join)
def test_every_listing_show_and_change_answers_in_json(path):
    """`--json` stands beside every command except two that run until they are stopped and one that is JSON anyway."""
    options = {name for parameter in LEAVES[path].params for name in parameter.opts}

    assert ("--json" in options) == (path not in {("up",), ("worker",), ("schema",)})


def test_help_imports_nothing_heavy():
    """`--help` answers without the database, the queue, the models or the cryptography."""
    code = (
        "import sys; from sense_worker.cli.main import run; assert run(['--help']) == 0; "
        f"print(sorted({HEAVY!r} & set(sys.modules)), file=sys.stderr)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    assert "sense-worker [OPTIONS] COMMAND" in done.stdout
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize("path", [(), ("pack",), ("grant", "add"), ("deliveries", "list")], ids=" ".join)
def test_help_is_readable_at_80_columns(path, monkeypatch, capsys):
    """No line of a help page is longer than 80 characters on a terminal of that width."""
    monkeypatch.setenv("COLUMNS", "80")

    code = main.run([*path, "--help"])

    assert code == 0
    assert max(len(line) for line in capsys.readouterr().out.splitlines()) <= 80


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (Denied("denied: missing pack.install"), 1, "denied: missing pack.install"),
        (NotFound("route rte_1", "does not exist"), 1, "route rte_1: does not exist"),
        (
            Conflict("sink log", "exists with other options", "remove it"),
            1,
            "sink log: exists with other options (remove it)",
        ),
        (UsageError("--expires", "'x' is no duration"), 2, "--expires: 'x' is no duration"),
        (SettingsError("SENSE_INTAKE", "must be a whole number"), 2, "SENSE_INTAKE: must be a whole number"),
        (LedgerBusy("database", "locked"), 1, "database: locked"),
        (FileNotFoundError(2, "No such file or directory", "/x\ny"), 1, "/x\\ny: No such file or directory"),
        (
            PackLintError("git", [LintIssue("missing_verb", "verbs.a", "no entry", "4.4.1")] * 2),
            1,
            "git: missing_verb: verbs.a: no entry [4.4.1] and 1 more (run `sense-worker pack lint`)",
        ),
        (
            UnicodeEncodeError("utf-8", "ana\udcff", 3, 4, "surrogates not allowed"),
            2,
            "'ana\\udcff': is not UTF-8 (write it in UTF-8)",
        ),
        (
            RuntimeError("secret\ntrace"),
            1,
            "unexpected RuntimeError: secret (run it again as `sense-worker --debug …` for the traceback)",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_a_failure_is_one_line_and_an_exit_code(error, code, line, monkeypatch, capsys):
    """Whatever a command raises becomes one line on standard error: never a traceback, nothing on standard output."""

    def fail():
        raise error

    monkeypatch.setattr(running, "settings", fail)

    assert main.run(["health"]) == code
    assert capsys.readouterr() == ("", f"error: {line}\n")


def test_an_interrupt_is_no_failure_to_report(monkeypatch, capsys):
    """Ctrl-C ends a command with 130 and no line: who pressed it knows."""

    def interrupt():
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "settings", interrupt)

    assert main.run(["health"]) == 130
    assert capsys.readouterr() == ("", "")


def test_debug_shows_the_traceback(monkeypatch, capsys):
    """With `--debug` the traceback comes before the line."""

    def fail():
        raise RuntimeError("boom")

    monkeypatch.setattr(running, "settings", fail)

    assert main.run(["--debug", "health"]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith("Traceback (most recent call last)")
    assert shown.endswith("for the traceback)\n")


@pytest.mark.parametrize(
    ("arguments", "place", "reason"),
    [
        (["nosuch"], "sense-worker", "No such command 'nosuch'"),
        (["grant", "add"], "sense-worker grant add", "Missing argument 'PRINCIPAL'"),
        (["pack", "list", "--x\x1b[2J"], "sense-worker pack list", "No such option: --x\\x1b[2J"),
    ],
)
def test_wrong_arguments_are_one_line_and_exit_2(arguments, place, reason, capsys):
    """The parser's own complaints look like every other: place, reason, way out."""
    assert main.run(arguments) == 2
    assert capsys.readouterr() == ("", f"error: {place}: {reason} (see `{place} --help`)\n")


def test_a_group_without_a_command_prints_its_help(capsys):
    """`sense-worker pack` shows what there is, and is no success."""
    assert main.run(["pack"]) == 2
    shown = capsys.readouterr()
    assert "Write, check, install and look at packs." in shown.out
    assert shown.err == ""


@pytest.mark.parametrize("arguments", [["version", "--json"], ["version"], ["--help"]], ids=" ".join)
def test_a_reader_that_went_away_is_no_traceback(arguments):
    """Output into a closed pipe ends quietly."""
    reader, writer = os.pipe()
    os.close(reader)

    with os.fdopen(writer, "wb") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "sense_worker.cli.main", *arguments],
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )

    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("arguments", [["version", "--json"], ["--help"]], ids=" ".join)
def test_a_full_disk_behind_the_output_is_one_line(arguments):
    """Output that cannot be written fails the command, in one line that says so."""
    with Path("/dev/full").open("wb") as full:
        called = [sys.executable, "-m", "sense_worker.cli.main", *arguments]
        done = subprocess.run(called, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60)

    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("error: output: No space left on device")


def test_no_file_takes_the_place_of_a_closed_stream():
    """Without standard output a command fails in one line; without standard error or input it does its work."""
    script = f"{sys.executable} -m sense_worker.cli.main"
    closed = (
        f"{script} version >&- || {script} version >&- 2>&- || {script} version 2>&- <&-; {script} pack lint /x 2>&-"
    )

    done = subprocess.run(["sh", "-c", closed], capture_output=True, text=True, check=False, timeout=60)

    assert (done.returncode, done.stdout.count("sense-worker ")) == (2, 1)
    assert (done.stderr.count("\n"), done.stderr[:34]) == (1, "error: output: Bad file descriptor")


def test_an_unknown_setting_is_a_warning_line(tmp_path, monkeypatch, capsys):
    """A misspelt setting is said on standard error and does not stop the command."""
    from sense_worker.cli import acting

    monkeypatch.setenv("HCP_HOME", str(tmp_path))
    monkeypatch.setenv("SENSE_INTAKES", "3")

    acting.settings()

    assert capsys.readouterr().err == "warning: SENSE_INTAKES: unknown setting, ignored; did you mean SENSE_INTAKE?\n"


def test_completion_completes():
    """What the shells' completion calls answers with the commands of a group."""
    asked = {"_SENSE_WORKER_COMPLETE": "complete_bash", "COMP_WORDS": "sense-worker grant ", "COMP_CWORD": "2"}

    done = subprocess.run(
        [sys.executable, "-c", "from sense_worker.cli.main import main; main()"],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert sorted(done.stdout.split()) == ["add", "list", "revoke"]


def test_the_version_is_told_by_a_flag_too(capsys):
    """As every other program does it, before any command; nothing else is asked for then."""
    codes = [main.run(["version"]), main.run(["--version"])]
    first, second = capsys.readouterr().out.split("sense-worker ")[1:]

    assert codes == [0, 0]
    assert first == second


@pytest.mark.parametrize(
    "arguments",
    [
        ("deliveries", "list", "--state", "HUGE"),
        ("grant", "revoke", "HUGE"),
        ("pack", "lint", "HUGE"),
        ("HUGE",),
        ("--HUGE",),
        ("dead", "list", "--limit", "HUGE"),
        ("sink", "add", "log", "jsonl", "--option", "HUGE"),
        ("publish", "HUGE", "--activation", "HUGE"),
    ],
)
@pytest.mark.parametrize("huge", ["x" * 100_000, "x y " * 25_000], ids=["unbroken", "with spaces"])
def test_a_huge_argument_is_not_echoed_whole(cli, arguments, huge):
    """The error keeps enough of it to know it again, and its own way out."""
    done = cli(*(one.replace("HUGE", huge) for one in arguments))

    assert done.code != 0
    assert 0 < len(done.err) < 2_300
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["--help"], ["pack", "lint", "examples/packs/git"], ["version"]])
def test_what_needs_no_database_loads_none(arguments):
    """Help, version and lint answer without the seconds that the database and the queue take to load."""
    code = (
        "import sys; from sense_worker.cli import main; main.run(sys.argv[1:]);"
        "print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)

    assert {"alembic", "celery", "redis", "sqlalchemy", "sqlmodel"}.isdisjoint(done.stderr.split())
