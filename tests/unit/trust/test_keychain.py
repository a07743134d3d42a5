"""keyring's own Mac back end runs here on a replacement of Apple's Security framework, which Linux lacks."""

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import keyring
import pytest
from keyring import backend, core
from keyring.backends import fail, macOS, null

from core.errors import IdentityError
from core.trust import keychain
from core.trust.identity import load_or_create
from core.trust.key_storage import key_place, move_key
from core.trust.roster.key_rotation import finish_rotation, prepare_rotation

LOCKED, DENIED, AUTH_FAILED = -25308, -128, -25293
NOT_FOUND = -25300


class KeychainApiError(Exception):
    pass


class NotFound(KeychainApiError):
    pass


class KeychainDenied(KeychainApiError):
    pass


class SecurityFramework:
    """Items, and the status that each call returns: 0, or one of Apple's, raised as keyring 25.7 raises it."""

    def __init__(self) -> None:
        self.items: dict[tuple[str, str], str] = {}
        self.status = 0
        self.forgets = False
        self.answered = threading.Event()
        self.answered.set()

    def _check(self) -> None:
        self.answered.wait(60)
        if self.status == DENIED:
            raise KeychainDenied(self.status, "Keychain Access Denied")
        if self.status:
            raise KeychainApiError(self.status, "Unknown Error")

    def set_generic_password(self, _: object, service: str, name: str, password: str) -> None:
        self._check()
        if not self.forgets:
            self.items[service, name] = password

    def find_generic_password(self, _: object, service: str, name: str) -> str:
        self._check()
        if (service, name) not in self.items:
            raise NotFound(NOT_FOUND, "Item not found")
        return self.items[service, name]

    def delete_generic_password(self, _: object, service: str, name: str) -> None:
        self._check()
        self.find_generic_password(None, service, name)
        del self.items[service, name]


@pytest.fixture
def mac_keychain(monkeypatch: pytest.MonkeyPatch) -> SecurityFramework:
    security = SecurityFramework()
    api = SimpleNamespace(
        Error=KeychainApiError,
        NotFound=NotFound,
        KeychainDenied=KeychainDenied,
        set_generic_password=security.set_generic_password,
        find_generic_password=security.find_generic_password,
        delete_generic_password=security.delete_generic_password,
    )
    monkeypatch.setattr(macOS, "api", api, raising=False)
    monkeypatch.setattr(core, "_keyring_backend", macOS.Keyring())  # type: ignore[no-untyped-call]
    return security


def test_the_keychain_keeps_the_passphrase(mac_keychain: SecurityFramework, tmp_path: Path) -> None:
    identity = load_or_create(tmp_path / "i", use_keychain=True)
    assert identity.storage == "keychain"
    assert mac_keychain.items == {("macluster", identity.text_id): identity.passphrase.decode()}
    assert not (tmp_path / "i" / "passphrase").exists()
    assert load_or_create(tmp_path / "i", use_keychain=True).public == identity.public
    mac_keychain.items.clear()
    with pytest.raises(IdentityError, match="no passphrase"):
        load_or_create(tmp_path / "i", use_keychain=True)


def test_the_mac_back_end_says_what_apple_said(mac_keychain: SecurityFramework) -> None:
    """errSecInteractionNotAllowed has no name in keyring: it is "Unknown Error" in two of its own error classes."""
    mac_keychain.status = LOCKED
    with pytest.raises(keyring.errors.PasswordSetError, match=r"\(-25308, 'Unknown Error'\)"):
        keyring.set_password("s", "n", "p")
    with pytest.raises(keyring.errors.KeyringError, match=r"\(-25308, 'Unknown Error'\)"):
        keyring.get_password("s", "n")


@pytest.mark.parametrize("status", [LOCKED, DENIED, AUTH_FAILED])
def test_over_ssh_and_launchd_the_passphrase_is_a_private_file(
    mac_keychain: SecurityFramework, tmp_path: Path, status: int
) -> None:
    mac_keychain.status = status
    identity = load_or_create(tmp_path / "i", use_keychain=True)
    assert identity.storage == "file permissions"
    assert (tmp_path / "i" / "passphrase").stat().st_mode & 0o777 == 0o600
    mac_keychain.status = 0
    assert load_or_create(tmp_path / "i", use_keychain=True).storage == "file permissions"
    assert not mac_keychain.items


@pytest.mark.parametrize(
    ("status", "said", "cure"),
    [
        (LOCKED, "is locked, or there is no desktop session", "`macluster trust key file` in a desktop session"),
        (DENIED, "the answer was no", "Always Allow"),
        (AUTH_FAILED, "password .* is wrong", "unlock-keychain"),
        (-25293000, "cannot be read", "unlock-keychain"),
    ],
)
def test_a_keychain_locked_later_says_how_to_unlock_it(
    mac_keychain: SecurityFramework, tmp_path: Path, status: int, said: str, cure: str
) -> None:
    load_or_create(tmp_path / "i", use_keychain=True)
    mac_keychain.status = status
    with pytest.raises(IdentityError, match=f"{said}.*{status}") as caught:
        load_or_create(tmp_path / "i", use_keychain=True)
    assert cure in caught.value.fix


def test_a_keychain_that_forgets_is_found_out_at_once(mac_keychain: SecurityFramework, tmp_path: Path) -> None:
    mac_keychain.forgets = True
    assert load_or_create(tmp_path / "i", use_keychain=True).storage == "file permissions"


class PlainFile(backend.KeyringBackend):
    """A plug-in that works and keeps secrets in an unknown place."""

    priority = 9
    kept: dict[str, str] = {}  # noqa: RUF012

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[username] = password

    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get(username)


@pytest.mark.parametrize("kind", [fail.Keyring, null.Keyring, PlainFile])
def test_any_other_back_end_of_keyring_is_no_keychain(
    kind: Callable[[], backend.KeyringBackend], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "_keyring_backend", kind())
    assert load_or_create(tmp_path / "i", use_keychain=True).storage == "file permissions"
    assert not PlainFile.kept
    (tmp_path / "i" / "passphrase").unlink()
    with pytest.raises(IdentityError, match="no keychain to ask") as caught:
        load_or_create(tmp_path / "i", use_keychain=True)
    assert "PYTHON_KEYRING_BACKEND" in caught.value.fix


@pytest.mark.parametrize("name", ["no.such.module", "os.nothing", "", "keyring.backends.macOS.Keyring", "os.path.join"])
def test_a_keyring_that_is_set_up_wrongly_is_no_keychain(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "_keyring_backend", None)
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", name)
    assert load_or_create(tmp_path / "i", use_keychain=True).storage == "file permissions"


def test_a_rotation_moves_the_item_to_the_name_of_the_new_key(mac_keychain: SecurityFramework, tmp_path: Path) -> None:
    old = load_or_create(tmp_path / "i", use_keychain=True)
    following = prepare_rotation(tmp_path / "i")
    assert set(mac_keychain.items.values()) == {old.passphrase.decode()}
    assert set(mac_keychain.items) == {("macluster", old.text_id), ("macluster", following.text_id)}
    assert load_or_create(tmp_path / "i").public == old.public
    assert finish_rotation(tmp_path / "i").storage == "keychain"
    assert set(mac_keychain.items) == {("macluster", following.text_id)}
    assert load_or_create(tmp_path / "i").public == following.public


def test_a_locked_keychain_stops_a_rotation_before_it_begins(mac_keychain: SecurityFramework, tmp_path: Path) -> None:
    load_or_create(tmp_path / "i", use_keychain=True)
    mac_keychain.forgets = True
    with pytest.raises(IdentityError, match="does not take") as caught:
        prepare_rotation(tmp_path / "i")
    assert "unlock-keychain" in caught.value.fix
    assert not list((tmp_path / "i").glob("identity-next*"))


def test_dropping_what_cannot_be_dropped_is_no_error(mac_keychain: SecurityFramework) -> None:
    keychain.drop("nobody")
    mac_keychain.status = LOCKED
    keychain.drop("nobody")


def test_macos_may_ask_and_nothing_waits_in_silence(
    mac_keychain: SecurityFramework, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = load_or_create(tmp_path / "i", use_keychain=True)
    monkeypatch.setattr(keychain, "ASKS_S", 0.01)
    mac_keychain.answered.clear()
    heard: list[bool] = []

    def on_wait(is_waiting: bool) -> None:
        heard.append(is_waiting)
        mac_keychain.answered.set()  # the user allows it

    assert load_or_create(tmp_path / "i", on_wait=on_wait).public == identity.public
    assert heard == [True, False]
    mac_keychain.answered.clear()
    monkeypatch.setattr(keychain, "PATIENCE_S", 0.01)
    with pytest.raises(IdentityError, match="macOS asked about it and got no answer"):
        load_or_create(tmp_path / "i")
    mac_keychain.answered.set()


def test_a_key_moves_from_one_place_to_the_other_and_is_the_same(
    mac_keychain: SecurityFramework, tmp_path: Path
) -> None:
    folder = tmp_path / "i"
    with pytest.raises(IdentityError, match="no key yet"):
        move_key(folder, "keychain")
    old = load_or_create(folder, use_keychain=False)
    following = prepare_rotation(folder)
    mac_keychain.status = LOCKED
    with pytest.raises(IdentityError, match="stays in its file"):
        move_key(folder, "keychain")
    assert key_place(folder) == "file"
    mac_keychain.status = 0
    assert move_key(folder, "keychain")
    assert not move_key(folder, "keychain"), "it is there"
    assert key_place(folder) == "keychain"
    assert set(mac_keychain.items) == {("macluster", old.text_id), ("macluster", following.text_id)}
    assert load_or_create(folder).public == old.public
    assert move_key(folder, "file")
    assert (folder / "passphrase").stat().st_mode & 0o777 == 0o600
    assert not mac_keychain.items
    again = load_or_create(folder)
    assert (again.public, again.passphrase, again.storage) == (old.public, old.passphrase, "file permissions")


def test_no_test_uses_the_keychain_of_the_person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes that tests start get the environment of the tests."""
    monkeypatch.setattr(core, "_keyring_backend", None)
    assert isinstance(core.load_env(), fail.Keyring)
    load_or_create(tmp_path / "i", use_keychain=True)
    assert key_place(tmp_path / "i") == "file"
