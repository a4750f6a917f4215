from __future__ import annotations

import json
import pickle
from ipaddress import ip_network
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kombu import Connection
from kombu.transport.redis import Channel
from pydantic import ValidationError
from redis.connection import parse_url

from runtime_core.errors import SettingsError
from sense_worker.settings import Settings

C65 = json.loads((Path(__file__).parents[1] / "cases" / "C65-values.json").read_text())
LOOSENS, TIGHTENS = "SENSE_ALLOW_MOCK", "SENSE_AUDIT_FSYNC"
KEY = "bWFkZSB1cCBmb3IgdGVzdHMgb25seSEgMzIgYnl0ZXM="


def refusal(**env: str) -> str:
    with pytest.raises(SettingsError) as caught:
        Settings.load(env)
    return str(caught.value)


def test_without_an_environment_every_setting_has_its_default():
    """Nothing has to be set; the guards stand where they should."""
    settings = Settings.load({})

    assert settings.home == Path("~/.hcp").expanduser()
    assert settings.database_url == f"sqlite:///{settings.home}/sense.db"
    assert settings.session_file == settings.home / "operator.session"
    assert settings.retry_schedule_s == (5, 300, 1_800, 7_200, 18_000, 36_000, 36_000)
    assert (settings.allow_mock, settings.audit_fsync, settings.exec_networks) == (False, True, ())
    assert (settings.sink_networks, settings.notify_services) == ((), ())
    assert (settings.redis_url, settings.broker_url, settings.secret_keys) == (None, None, None)


def test_the_environment_is_read_by_name(tmp_path: Path):
    """Each value of the environment reaches its field in its own type."""
    settings = Settings.load(
        {
            "HCP_HOME": str(tmp_path),
            "SENSE_INTAKE": "2",
            "SENSE_SWEEP_S": "0.1",
            "SENSE_RETRY_SCHEDULE_S": "1,2.5",
            "SENSE_EXEC_NETWORKS": "10.0.0.0/8, fd00::/8",
            "SENSE_SINK_NETWORKS": "127.0.0.0/8",
            "SENSE_NOTIFY_SERVICES": "slack, mailto",
            "SENSE_LOG_FORMAT": "json",
            "SENSE_ACTIVATION_FILE": str(tmp_path / "a.json"),
            "PATH": "/bin",
        }
    )

    assert (settings.intake, settings.sweep_s, settings.retry_schedule_s) == (2, 0.1, (1.0, 2.5))
    assert settings.log_format == "json"
    assert settings.activation_file == tmp_path / "a.json"
    assert settings.exec_networks == (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))
    assert settings.sink_networks == (ip_network("127.0.0.0/8"),)
    assert settings.notify_services == ("slack", "mailto")
    assert settings.database_url == f"sqlite:///{tmp_path}/sense.db"
    assert (settings.key_file, settings.audit_file) == (tmp_path / "secret.keys", tmp_path / "audit.jsonl")


def test_built_by_hand_it_reads_no_environment(monkeypatch: pytest.MonkeyPatch):
    """Only `load` reads the environment, so a host's variables never reach a host's own settings object."""
    monkeypatch.setenv("SENSE_INTAKE", "7")

    assert Settings(intake=3).intake == 3
    assert Settings(home="/h").intake != 7
    assert Settings.load().intake == 7


def test_it_is_frozen_and_travels_to_other_processes():
    """A setting cannot change after the boot, and a spawned child gets the same ones."""
    settings = Settings.load({"SENSE_INTAKE": "2", "SENSE_NONSENSE": "1"})

    with pytest.raises(ValidationError):
        settings.intake = 3  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(settings)) == settings  # noqa: S301 - our own bytes


def test_a_relative_home_is_one_place_for_every_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A path means what it meant at the boot, also in a child that runs in another folder."""
    monkeypatch.chdir(tmp_path)
    settings = Settings.load({"HCP_HOME": "here"})
    monkeypatch.chdir("/")

    assert settings.home == tmp_path / "here"


@pytest.mark.case("C65")
@pytest.mark.parametrize("name", [LOOSENS, TIGHTENS])
def test_documented_words_set_a_boolean(name: str):
    """The documented words work for a setting that loosens a guard and for one that tightens it."""
    field = name.removeprefix("SENSE_").lower()

    assert [getattr(Settings.load({name: word}), field) for word in C65["true_words"]] == [True, True]
    assert [getattr(Settings.load({name: word}), field) for word in C65["false_words"]] == [False, False]


@pytest.mark.case("C65")
@pytest.mark.parametrize("name", [LOOSENS, TIGHTENS])
@pytest.mark.parametrize(
    "value",
    [
        *C65["must_stop"],
        "",
        " ",
        "TRUE",
        "True",
        "yes",
        "on",
        "y",
        "t",
        "01",
        "1.0",
        "true\n",
        "\uff54\uff52\uff55\uff45",
    ],
)
def test_any_other_word_stops_the_start(name: str, value: str):
    """The start stops, with the setting's name, what is accepted, and not the value."""
    text = refusal(**{name: value})

    assert text.startswith(f"{name}: ")
    assert "must be one of true, false, 1, 0" in text or "is empty" in text


@pytest.mark.case("C65")
@given(st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_no_undocumented_word_loosens_a_guard(value: str):
    """Whatever the value, the guard is loose only for a documented word."""
    try:
        loose = Settings.load({LOOSENS: value}).allow_mock
    except SettingsError:
        loose = False

    assert loose == (value in C65["true_words"])


@pytest.mark.case("C11")
@pytest.mark.parametrize("value", ["", " ", "\t \n", "$NOWHERE", "${NOWHERE}", "${NOWHERE:-}", " ${X} "])
def test_an_empty_secret_or_an_unexpanded_reference_stops_the_start(value: str):
    """A secret that is there and says nothing is not a secret; the setting is named, the value is not."""
    text = refusal(SENSE_SECRET_KEYS=value)

    assert text.startswith("SENSE_SECRET_KEYS: is ")
    assert not value.strip() or value.strip() not in text


@pytest.mark.parametrize("name", ["HCP_HOME", "SENSE_REDIS_URL", "SENSE_INTAKE", "SENSE_RETRY_SCHEDULE_S"])
@pytest.mark.parametrize("value", ["", "  ", "$X", "${X}"])
def test_no_setting_takes_an_empty_value(name: str, value: str):
    """Empty is not unset: it is most often a variable that was not there."""
    assert refusal(**{name: value}).startswith(f"{name}: is ")


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("SENSE_INTAKE", "hunter2", "whole number"),
        ("SENSE_INTAKE", "0", "greater than or equal to 1"),
        ("SENSE_INTAKE", "99999", "less than or equal to 64"),
        ("SENSE_INTAKE", "1.0", "whole number"),
        ("SENSE_INTAKE", "1_0", "whole number"),
        ("SENSE_INTAKE", "9" * 5_000, "whole number"),
        ("SENSE_SWEEP_S", "nan", "a number such as"),
        ("SENSE_SWEEP_S", "inf", "a number such as"),
        ("SENSE_SWEEP_S", "-1", "greater than or equal to 0.05"),
        ("SENSE_SWEEP_S", "1e9", "a number such as"),
        ("SENSE_SWEEP_S", "hunter2", "a number such as"),
        ("SENSE_ANCHOR_S", "6", "less than or equal to 5"),
        ("SENSE_RETENTION_DAYS", "0", "greater than or equal to 1"),
        ("SENSE_RETRY_JITTER", "1", "less than 1"),
        ("SENSE_RETRY_SCHEDULE_S", "5,,300", "separated by commas"),
        ("SENSE_RETRY_SCHEDULE_S", "5,300,", "separated by commas"),
        ("SENSE_RETRY_SCHEDULE_S", "[5]", "separated by commas"),
        ("SENSE_RETRY_SCHEDULE_S", "5,hunter2", "separated by commas"),
        ("SENSE_RETRY_SCHEDULE_S", "5,9999999", "less than or equal to 2592000"),
        ("SENSE_RETRY_SCHEDULE_S", ",".join(["5"] * 65), "at most 64"),
        (
            "SENSE_EXEC_NETWORKS",
            "10.0.0.1/8",
            "10.0.0.1/8 has host bits set; write 10.0.0.0/8, or 10.0.0.1/32 for that",
        ),
        ("SENSE_EXEC_NETWORKS", "10.0.0.0/8,", "networks separated by commas"),
        ("SENSE_EXEC_NETWORKS", "hunter2", "networks separated by commas"),
        (
            "SENSE_SINK_NETWORKS",
            "::1/8, 10.0.0.0/8",
            "::1/8 has host bits set; write ::/8, or ::1/128 for",
        ),
        ("SENSE_NOTIFY_SERVICES", "slack,", "services separated by commas"),
        ("SENSE_NOTIFY_SERVICES", "slack://hunter2", "services separated by commas"),
        ("SENSE_LOG_LEVEL", "hunter2", "'debug', 'info', 'warning' or 'error'"),
        ("SENSE_LOG_FORMAT", "JSON", "'console' or 'json'"),
        ("SENSE_DATABASE_URL", "mysql://a:hunter2@h/d", "postgresql://"),
        ("SENSE_DATABASE_URL", "postgres://a:hunter2@h/d", "postgresql://"),
        ("SENSE_DATABASE_URL", "sqlite:///relative.db", "sqlite:////absolute"),
        ("SENSE_DATABASE_URL", "sqlite://", "sqlite:////absolute"),
        ("HCP_HOME", "~nobody-of-that-name/x", "absolute path"),
    ],
)
def test_a_wrong_value_names_the_setting_and_what_is_accepted(name: str, value: str, accepted: str):
    """One line: the setting, the accepted form, never the value."""
    text = refusal(**{name: value})

    assert text.startswith(f"{name}: ")
    assert accepted in text
    assert "hunter2" not in text
    assert "\n" not in text


def test_all_wrong_settings_are_named_at_once():
    """A start that stops twice for two mistakes wastes a deploy."""
    text = refusal(SENSE_INTAKE="x", SENSE_LOG_LEVEL="loud", HCP_HOME="~nobody-of-that-name/x")

    assert [name in text for name in ("SENSE_INTAKE", "SENSE_LOG_LEVEL", "HCP_HOME")] == [True, True, True]
    assert "SENSE_DATABASE_URL" not in text


@pytest.mark.parametrize(
    ("url", "broker"),
    [
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        ("redis://:p%40ss@[::1]:6380/2", "redis://:p%40ss@[::1]:6380/2"),
        ("rediss://redis.example", "rediss://redis.example"),
        ("unix:///run/redis.sock", "redis+socket:///run/redis.sock?virtual_host=0"),
        ("unix://bob:p%40ss@/run/r.sock?db=3", "redis+socket://bob:p%40ss@/run/r.sock?virtual_host=3"),
    ],
)
def test_a_redis_address_has_a_form_for_the_broker(url: str, broker: str):
    """The address stays as written; a socket's is rewritten in the form Celery's transport reads."""
    settings = Settings.load({"SENSE_REDIS_URL": url})

    assert (settings.redis_url, settings.broker_url) == (url, broker)


@pytest.mark.parametrize("url", ["unix://bob:p%40ss@/run/a%20b/r.sock?db=3", "redis://bob:p%40ss@127.0.0.1:1/3"])
def test_client_and_broker_read_the_same_server_from_one_address(url: str):
    """redis-py and Celery's transport agree on place, name, password and database."""
    settings = Settings.load({"SENSE_REDIS_URL": url})
    client = parse_url(settings.redis_url)
    channel: Any = object.__new__(Channel)  # its own way to connection arguments, without a connection
    channel.connection = SimpleNamespace(client=Connection(settings.broker_url or ""), default_port=6379)
    broker = channel._connparams()

    assert client["db"] == broker["db"] == 3
    assert [client[name] for name in ("username", "password")] == [broker[name] for name in ("username", "password")]
    assert [client.get(name) for name in ("path", "host", "port")] == [
        broker.get(name) for name in ("path", "host", "port")
    ]


@pytest.mark.parametrize(
    "url",
    [
        "localhost:6379",
        "http://h",
        "redis://",
        "redis:///0",
        "redis://h:99999",
        "redis://h:x",
        "redis://h/name",
        "redis://h/0/1",
        "redis://h /0",
        "redis://h/0#x",
        "redis://[::1/0",
        "unix://",
        "unix:///",
        "unix://run/redis.sock",
        "unix:///run/r.sock?db=x",
        "unix:///run/r.sock?password=hunter2",
        "redis+socket:///run/r.sock",
        "REDIS://h\n",
    ],
)
def test_another_form_of_a_redis_address_stops_the_start(url: str):
    """What no client would read the same way is refused with the three forms."""
    text = refusal(SENSE_REDIS_URL=url)

    assert text.startswith("SENSE_REDIS_URL: must be redis://name:password@host:port/db, rediss://… or unix:///")


def test_a_printed_settings_object_shows_no_secret():
    """Passwords and keys are masked, hosts stay visible."""
    settings = Settings.load(
        {
            "SENSE_REDIS_URL": "redis://bob:hunter2@redis.example:1/0?password=hunter2",
            "SENSE_DATABASE_URL": "postgresql://a:hunter2/x@hunter2@db.example/d?password=hunter2&x=1",
            "SENSE_SECRET_KEYS": KEY,
        }
    )

    for text in (repr(settings), str(settings), f"{settings}"):
        assert "hunter2" not in text
        assert KEY not in text
        assert "redis://bob:***@redis.example:1/0" in text
        assert "postgresql://a:***@db.example/d?password=***&x=1" in text


def test_a_settings_object_made_by_hand_does_not_tell_the_value_either():
    """A host that passes a wrong value sees the setting's name and not the value."""
    with pytest.raises(ValidationError, match="intake") as caught:
        Settings(intake="hunter2")

    assert "hunter2" not in str(caught.value)


def test_unknown_names_are_reported_with_the_setting_they_resemble():
    """A misspelt setting would be silently without effect; the names of the test suite are left alone."""
    settings = Settings.load(
        {
            "SENSE_REDIS_URI": "redis://h",
            "sense_intake": "2",
            "SENSE_HOME": "/x",
            "SENSE_ZZZ\n": "1",
            "SENSE_TEST_DATABASE_URL": "x",
            "SENSE_INTAKE": "2",
        }
    )

    assert settings.unknown_warnings == (
        "SENSE_HOME: unknown setting, ignored; did you mean HCP_HOME?",
        "SENSE_REDIS_URI: unknown setting, ignored; did you mean SENSE_REDIS_URL?",
        "SENSE_ZZZ\\n: unknown setting, ignored",
        "sense_intake: unknown setting, ignored; did you mean SENSE_INTAKE?",
    )
    assert Settings.load({}).unknown_warnings == ()
