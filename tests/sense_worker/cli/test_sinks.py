"""`sink …` for sinks with secrets: made, shown once, read from files, masked, rotated, changed and tried."""

from __future__ import annotations

import importlib.util
import io
import json
import sys
from typing import Any

import pytest
from standardwebhooks import Webhook as Verifier

from sense_worker.cli import main
from sinks.registry import Registry
from tests.sinks.webhook_receiver import SECRET, Receiver, said

URL = "https://1.1.1.1/MARK?token=MARK"


@pytest.fixture
def hooked(cli, monkeypatch: pytest.MonkeyPatch):
    """A home whose operator lets sinks reach loopback."""
    monkeypatch.setenv("SENSE_SINK_NETWORKS", "127.0.0.0/8")
    return cli


def typed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Put text on standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


class TestAdding:
    def test_the_help_names_every_kind_that_ships(self):
        """What `sink add --help` says of KIND is what can be added without a plugin."""
        (kind,) = [one for one in main.command().commands["sink"].commands["add"].params if one.name == "kind"]
        *named, plugins = kind.help.split(", ")
        assert (tuple(sorted(named)), plugins) == (Registry().kinds(), "or a plugin's.")

    def test_a_secret_is_made_and_shown_once(self, cli):
        """Without a secret one is made; only the call that made it shows it, and the address is shown by its host."""
        done = cli("sink", "add", "hook", "webhook", "--option", f"url={URL}")
        (secret,) = [line.split()[-1] for line in done.out.splitlines() if "whsec_" in line]
        assert (done.code, done.err) == (0, "warning: the secret is shown this once: give it to the receiver now\n")
        again = cli("sink", "add", "hook", "webhook", "--option", f"url={URL}")
        shown = cli("sink", "show", "hook")
        assert ("whsec_" in again.out, "url https://1.1.1.1/***" in shown.out, "secret ***" in shown.out) == (
            False,
            True,
            True,
        )
        texts = (again.out, again.err, shown.out, cli("sink", "list").out, cli("sink", "show", "hook", "--json").out)
        assert [text for text in texts if secret in text or "MARK" in text] == []

    def test_json_has_the_secret_in_the_call_that_made_it(self, cli):
        """A script gets it the same way; afterwards it is masked."""
        made = cli.json("sink", "add", "hook", "webhook", "--option", f"url={URL}")
        assert made["secret"].startswith("whsec_")
        shown = cli.json("sink", "show", "hook")
        assert (shown["options"]["secret"], shown["options"]["url"]) == ("***", "https://1.1.1.1/***")
        assert shown["options"]["payload"] == "thin"
        assert "secret" not in cli.json("sink", "list")["items"][0]

    @pytest.mark.parametrize("ending", ["", "\n", "\r\n"])
    def test_secrets_need_not_stand_in_argv(self, cli, tmp_path, monkeypatch, ending: str):
        """A secret option is read from a file or from standard input; a line break at its end is not of it."""
        (tmp_path / "secret").write_bytes((SECRET + ending).encode())
        typed(monkeypatch, URL + ending)
        row = cli.json("sink", "add", "hook", "webhook", "--option", f"secret=@{tmp_path}/secret", "--option", "url=-")
        assert "secret" not in row
        assert cli.json("sink", "show", "hook")["options"]["url"] == "https://1.1.1.1/***"

    @pytest.mark.parametrize(
        ("content", "reason"),
        [(b"", "is empty"), (b"\n", "is empty"), (b"\xff\xfe", "is not UTF-8"), (b"x" * 300_000, "over 256 KiB")],
    )
    def test_a_file_that_holds_no_secret(self, cli, tmp_path, content: bytes, reason: str):
        """It is refused by the option's name."""
        (tmp_path / "secret").write_bytes(content)
        done = cli("sink", "add", "hook", "webhook", "--option", f"url={URL}", "--option", f"secret=@{tmp_path}/secret")
        assert (done.code, done.err.startswith("error: --option secret: "), reason in done.err) == (2, True, True)

    def test_only_a_secret_is_read_from_a_file(self, cli, tmp_path):
        """In another option `@` is a character, and so it is in JSON."""
        done = cli("sink", "add", "hook", "webhook", "--option", f"url={URL}", "--option", "link=@/etc/hostname")
        assert "options.link: must be an address" in done.err
        done = cli("sink", "add", "hook", "webhook", "--option", f"url={URL}", "--option", 'secret:="@/etc/hostname"')
        assert "options.secret: must be whsec_" in done.err
        done = cli("sink", "add", "hook", "webhook", "--option", f"url=@{tmp_path}/none")
        assert (done.code, "No such file" in done.err) == (2, True)

    def test_an_internal_address_names_the_way_out(self, cli):
        """One line: place, reason, the setting."""
        done = cli("sink", "add", "hook", "webhook", "--option", "url=https://10.0.0.5/MARK")
        assert (done.code, done.out, "MARK" in done.err, done.err.count("\n")) == (2, "", False, 1)
        assert done.err.startswith("error: options.url: its address is internal; ")
        assert "SENSE_SINK_NETWORKS=10.0.0.0/8" in done.err

    def test_an_extra_that_is_missing_is_told_at_once(self, cli, monkeypatch):
        """The row is made, for a worker may have it; `sink add`, `sink list` and `doctor` say what to install."""
        find_spec = importlib.util.find_spec
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "aiohttp" else find_spec(name))
        lack = "sink kind webhook: needs aiohttp (pip install 'sense-worker[webhook]')"
        done = cli("sink", "add", "hook", "webhook", "--option", f"url={URL}", "--option", f"secret={SECRET}")
        assert (done.code, done.err) == (
            0,
            f"warning: hook: {lack}; a worker that lacks it too holds what is for this sink\n",
        )
        assert cli.json("sink", "list")["items"][0]["fault"] == lack
        found = {one["name"]: (one["state"], one["text"]) for one in cli.json("doctor")["findings"]}
        assert (found["sink kind webhook"], found["sink default/hook"]) == (("note", lack), ("note", lack))
        assert found["sink kind notify"] == ("ok", "Apprise is there")

    def test_what_this_shell_alone_may_allow_is_said(self, hooked, monkeypatch):
        """Added, listed and tried under SENSE_SINK_NETWORKS: a worker needs it too; without it there is a fault."""
        told = "warning: hook: allowed by this shell's SENSE_SINK_NETWORKS; a worker needs the same setting\n"
        with Receiver() as receiver:
            added = hooked("sink", "add", "hook", "webhook", "--option", f"url={receiver.url}")
            tried = hooked("sink", "test", "hook")
        assert (tried.code, tried.err.startswith(told), told in added.err) == (0, True, True)
        listed = hooked("sink", "list")
        assert (listed.err.startswith(told), "FAULT" in listed.out) == (True, False)
        monkeypatch.delenv("SENSE_SINK_NETWORKS")
        listed = hooked("sink", "list")
        assert (listed.err, "options.url: its address is internal" in listed.out) == ("", True)

    def test_replaced_secrets_want_the_one_that_signs(self, cli):
        """`previous` alone is refused with both ways out, when a sink is added and when it is changed."""
        replaced = '[{"secret": "' + SECRET + '", "until": "2100-01-01T00:00:00Z"}]'
        said = "error: options.previous: holds what secret has replaced, and there is no secret (give secret too, or "
        done = cli("sink", "add", "hook", "webhook", "--option", f"url={URL}", "--option", f"previous:={replaced}")
        assert (done.code, done.err) == (2, f"{said}neither: then one is made)\n")
        cli.json("sink", "add", "hook", "webhook", "--option", f"url={URL}")
        done = cli("sink", "set", "hook", "--option", "secret:=null", "--option", f"previous:={replaced}")
        assert (done.code, done.err.startswith(said)) == (2, True)
        assert cli("sink", "set", "hook", "--option", f"previous:={replaced}").code == 0


class TestRotating:
    def test_twice_in_a_row(self, hooked):
        """Each shows its new secret once and until when the one before signs; all of them sign meanwhile."""
        with Receiver() as receiver:
            first = hooked.json("sink", "add", "hook", "webhook", "--option", f"url={receiver.url}")["secret"]
            second = hooked.json("sink", "rotate", "hook", "--overlap", "12h")
            done = hooked("sink", "rotate", "hook")
            (third,) = [line.split()[-1] for line in done.out.splitlines() if "whsec_" in line]
            assert "; the secret before is good until 2" in done.out
            assert hooked("sink", "test", "hook").code == 0
        (request,) = receiver.received
        for secret in (first, second["secret"], third):
            Verifier(secret).verify(request.body, request.headers)
        shown = hooked.json("sink", "show", "hook")["options"]["previous"]
        assert [one["secret"] for one in shown] == ["***", "***"]

    def test_without_an_overlap(self, hooked):
        """With `--overlap 0` the one before signs no longer."""
        hooked.json("sink", "add", "hook", "webhook", "--option", f"url={URL}")
        rotated = hooked.json("sink", "rotate", "hook", "--overlap", "0")
        assert (rotated["overlap_ends_at"], hooked.json("sink", "show", "hook")["options"]["previous"]) == (None, [])

    @pytest.mark.parametrize(
        ("arguments", "code", "words"),
        [
            (("rotate", "inbox"), 2, "kind 'inbox' has no secret of its own"),
            (("rotate", "none"), 1, "there is no 'none'"),
            (("rotate", "inbox", "--overlap", "31d"), 2, "between 0 and 30 days"),
            (("show", "none"), 1, "there is no 'none'"),
            (("test", "none"), 1, "there is no 'none'"),
            (("test", "inbox"), 2, "kind 'inbox' is a table of the ledger"),
            (("set", "none", "--option", "a=b"), 1, "there is no 'none'"),
            (("set", "inbox", "--option", "a=b"), 2, "options.a: extra inputs are not permitted"),
        ],
    )
    def test_what_is_refused(self, cli, arguments: tuple[str, ...], code: int, words: str):
        """One line with the reason."""
        done = cli("sink", *arguments)
        assert (done.code, done.out, words in done.err, done.err.count("\n")) == (code, "", True, 1)


class TestTrying:
    def test_a_delivery_goes_the_way_of_all(self, hooked):
        """It is signed and built like any other; the audit has a line, the ledger nothing."""
        with Receiver() as receiver:
            secret = hooked.json("sink", "add", "hook", "webhook", "--option", f"url={receiver.url}")["secret"]
            row = hooked.json("sink", "test", "hook")
        assert (row["outcome"], row["reason"]) == ("delivered", "200")
        (request,) = receiver.received
        sent = Verifier(secret).verify(request.body, request.headers)
        assert (sent["type"], sent["data"]["subject"], sent["data"]["principal"]) == ("sink.test", "test", "operator")
        assert hooked.json("deliveries", "list")["items"] == []
        assert hooked.json("audit", "tail")["items"][-1]["action"] == "sink.test"

    @pytest.mark.parametrize(
        ("status", "outcome", "reason"),
        [(503, "retry", "answered 503"), (410, "rejected", "answered 410: it is gone"), (301, "retry", "not followed")],
    )
    def test_what_does_not_arrive_ends_with_1(self, hooked, status: int, outcome: str, reason: str):
        """The outcome is printed, the exit code is 1, and the sink stays as it is."""
        with Receiver(lambda _: said(status)) as receiver:
            hooked.json("sink", "add", "hook", "webhook", "--option", f"url={receiver.url}")
            done = hooked("sink", "test", "hook", "--json")
        assert (done.code, done.err, done.json["outcome"]) == (1, "", outcome)
        assert reason in done.json["reason"]
        assert hooked.json("sink", "show", "hook")["disabled_at"] is None

    def test_a_sink_that_cannot_be_opened(self, hooked, monkeypatch):
        """Where the host no longer allows the address, nothing is sent and the reason is that of its deliveries."""
        with Receiver() as receiver:
            hooked.json("sink", "add", "hook", "webhook", "--option", f"url={receiver.url}")
            monkeypatch.delenv("SENSE_SINK_NETWORKS")
            done = hooked("sink", "test", "hook", "--json")
        assert (done.code, done.json["outcome"], receiver.connections) == (1, "held", 0)
        assert "SENSE_SINK_NETWORKS" in str(hooked.json("sink", "show", "hook")["fault"])


def test_options_are_changed_and_taken_back(hooked):
    """`set` changes what it names and leaves the rest; null is the default again; a wrong one changes nothing."""

    def options() -> Any:
        return hooked.json("sink", "show", "hook")["options"]

    hooked.json("sink", "add", "hook", "webhook", "--option", f"url={URL}", "--option", "payload=full")
    hooked.json("sink", "set", "hook", "--option", "in_flight:=4", "--option", "url=https://1.0.0.1/MARK")
    assert (options()["in_flight"], options()["payload"], options()["url"]) == (4, "full", "https://1.0.0.1/***")
    hooked.json("sink", "set", "hook", "--options-json", json.dumps({"payload": None}))
    assert options()["payload"] == "thin"
    done = hooked("sink", "set", "hook", "--option", "in_flight:=0")
    assert (done.code, "options.in_flight" in done.err, options()["in_flight"]) == (2, True, 4)
    actions = [line["action"] for line in hooked.json("audit", "tail")["items"]]
    hooked.json("sink", "set", "hook", "--option", "in_flight:=4")
    assert [line["action"] for line in hooked.json("audit", "tail")["items"]] == actions
