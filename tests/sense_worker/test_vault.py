from __future__ import annotations

import base64
import multiprocessing
import os
import stat
from typing import TYPE_CHECKING

import pytest
from cryptography.fernet import Fernet, MultiFernet

from runtime_core.errors import HcpError, SettingsError
from sense_worker.settings import Settings
from sense_worker.vault import Vault

if TYPE_CHECKING:
    from pathlib import Path

OLD, NEW = base64.urlsafe_b64encode(b"o" * 32).decode(), base64.urlsafe_b64encode(b"n" * 32).decode()


def of(*keys: str) -> Vault:
    return Vault.load(Settings(secret_keys=",".join(keys)))


def names(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir()]


def refusal(settings: Settings) -> str:
    with pytest.raises(SettingsError) as caught:
        Vault.load(settings)
    return str(caught.value)


def test_what_was_sealed_is_opened_and_not_to_be_seen():
    """A secret comes back as it was, and its bytes stand nowhere in the token."""
    token = of(NEW).seal(b"a secret")

    assert of(NEW).open(token) == b"a secret"
    assert b"a secret" not in token
    assert MultiFernet([Fernet(NEW)]).decrypt(token) == b"a secret"


def test_an_older_key_still_opens_and_rotate_moves_to_the_first():
    """After a rotation both keys open; what was sealed anew needs the first alone."""
    token = of(OLD).seal(b"a secret")
    both = of(NEW, OLD)
    moved = both.rotate(token)

    assert both.open(token) == b"a secret"
    assert of(NEW).open(moved) == b"a secret"


@pytest.mark.parametrize(
    "token",
    [of(OLD).seal(b"x"), b"", b"no token", of(NEW).seal(b"x")[:-4]],
    ids=["of another key", "empty", "no token", "cut"],  # random keys are no names: every test process needs the same
)
def test_a_token_no_key_opens_names_the_way_out(token: bytes):
    """Opening and moving fail with one line that says the key is missing."""
    for use in (of(NEW).open, of(NEW).rotate):
        with pytest.raises(HcpError, match=r"sealed secret: no key opens it .*key is missing.*SENSE_SECRET_KEYS"):
            use(token)


def test_derived_keys_differ_by_label_and_by_key():
    """A derived key is 32 bytes, the same each time, and tells nothing of another."""
    vault = of(NEW, OLD)

    assert len(vault.derive("audit")) == 32
    assert vault.derive("audit") == of(NEW).derive("audit")
    assert len({vault.derive("audit"), vault.derive("other"), of(OLD).derive("audit"), b"n" * 32}) == 4
    assert vault.derive_all("audit") == (of(NEW).derive("audit"), of(OLD).derive("audit"))


def test_a_derived_key_does_not_change_between_releases():
    """The audit chain of a host stays verifiable: HKDF-SHA256, no salt, info `sense-worker:<label>`."""
    assert of(NEW).derive("audit").hex() == "4805717005441044dc683be21f3b49c2984e0250611fc5f6c988ea405987daa9"


def test_a_printed_vault_shows_no_key():
    """Neither repr nor str holds key material."""
    vault = of(NEW)

    assert [text in repr(vault) + str(vault) for text in (NEW, "nnnn")] == [False, False]


@pytest.mark.case("C11")
@pytest.mark.parametrize(
    "value",
    ["x", OLD + ",", f"{OLD},,{NEW}", "A" * 44, f"{OLD},$NEW", OLD[:-2], "é" * 32],
    ids=["short", "comma at the end", "empty entry", "no key", "reference", "cut", "not ASCII"],
)
def test_a_wrong_entry_of_the_setting_stops_the_start(value: str):
    """The setting is named and the number of the entry; the value is not."""
    text = refusal(Settings(secret_keys=value))

    assert text.startswith("SENSE_SECRET_KEYS: entry ")
    assert value not in text


def test_create_makes_a_private_file_once(tmp_path: Path):
    """The folder and the file are the owner's alone; a second call changes nothing."""
    home = tmp_path / "deep" / "home"

    assert Vault.create(home)
    key = (home / "secret.keys").read_bytes()
    assert not Vault.create(home)

    assert (home / "secret.keys").read_bytes() == key
    assert stat.S_IMODE((home / "secret.keys").stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert names(home) == ["secret.keys"]
    assert Vault.load(Settings(home=home)).open(of(key.decode().strip()).seal(b"x")) == b"x"


def _create(home: Path, gate, answers) -> None:
    gate.wait()
    made = Vault.create(home)
    answers.put((made, Vault.load(Settings(home=home)).derive("audit")))


def test_many_processes_create_one_key(tmp_path: Path):
    """Eight processes at once: one makes the file, all read the same whole key at once."""
    context = multiprocessing.get_context("fork")
    gate, answers = context.Barrier(8), context.SimpleQueue()
    processes = [context.Process(target=_create, args=(tmp_path / "home", gate, answers)) for _ in range(8)]
    for process in processes:
        process.start()
    found = [answers.get() for _ in processes]
    for process in processes:
        process.join()

    assert sorted(made for made, _ in found) == [False] * 7 + [True]
    assert len({key for _, key in found}) == 1
    assert names(tmp_path / "home") == ["secret.keys"]


def test_the_key_file_holds_one_key_a_line(tmp_path: Path):
    """The first line is the current key; blank lines and line ends of another system do no harm."""
    file = tmp_path / "secret.keys"
    file.write_bytes(f"{NEW}\r\n\n{OLD}\n".encode())
    file.chmod(0o600)
    vault = Vault.load(Settings(home=tmp_path))

    assert vault.derive("audit") == of(NEW).derive("audit")
    assert vault.open(of(OLD).seal(b"x")) == b"x"


def _missing(_: Path) -> None:
    pass


def _empty(file: Path) -> None:
    file.touch(0o600)


def _blank(file: Path) -> None:
    file.write_text(" \n\n")
    file.chmod(0o600)


def _dangling(file: Path) -> None:
    file.symlink_to(file.parent / "nowhere")


def _folder(file: Path) -> None:
    file.mkdir()


def _pipe(file: Path) -> None:
    os.mkfifo(file, 0o600)


def _invalid(file: Path) -> None:
    file.write_text(f"{NEW}\nnot a key\n")
    file.chmod(0o600)


def _binary(file: Path) -> None:
    file.write_bytes(b"\xff" * 100)
    file.chmod(0o600)


def _open_to_all(file: Path) -> None:
    file.write_text(NEW)
    file.chmod(0o644)


@pytest.mark.case("C11")
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_missing, "is missing (run `sense-worker init`"),
        (_empty, "is empty (remove it, then run `sense-worker init`"),
        (_blank, "is empty (remove it, then run `sense-worker init`"),
        (_dangling, "is a dangling link (remove it, then run `sense-worker init`"),
        (_folder, "is no regular file (remove it"),
        (_pipe, "is no regular file (remove it"),
        (_invalid, "line 2 is no Fernet key"),
        (_binary, "line 1 is no Fernet key"),
        (_open_to_all, "others may read the key file (chmod 600"),
    ],
)
def test_a_key_file_that_cannot_serve_stops_the_start(tmp_path: Path, make, reason: str):
    """Unset and no usable file: the start stops, naming the file, what is wrong, and the way out."""
    make(tmp_path / "secret.keys")
    text = refusal(Settings(home=tmp_path))

    assert text.startswith(f"{tmp_path}/secret.keys: ")
    assert reason in text
    assert NEW not in text


@pytest.mark.case("C11")
def test_create_leaves_what_stands_in_the_place(tmp_path: Path):
    """A dangling link or an empty file is not silently replaced: the operator is told at the load."""
    _dangling(tmp_path / "secret.keys")

    assert not Vault.create(tmp_path)
    assert names(tmp_path) == ["secret.keys"]
    assert "dangling link" in refusal(Settings(home=tmp_path))


def test_a_link_to_a_key_file_is_followed(tmp_path: Path):
    """Mounted secrets are links to regular files."""
    _invalid(tmp_path / "mounted")
    (tmp_path / "mounted").write_text(NEW)
    (tmp_path / "secret.keys").symlink_to("mounted")

    assert Vault.load(Settings(home=tmp_path)).derive("audit") == of(NEW).derive("audit")


def test_a_vault_needs_whole_keys():
    """No key, and a short key, are refused where a vault is made by hand."""
    for keys in ([], [b""], [b"short"]):
        with pytest.raises(ValueError, match="at least one key"):
            Vault(keys)
