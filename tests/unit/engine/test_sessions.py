"""The file of a saved conversation is read whole or refused with the reason, however its bytes change."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.engine.sessions import (
    END,
    SessionFile,
    check_fits,
    delete_session,
    existing,
    forget_shared,
    forget_unfinished,
    list_sessions,
    path_of,
    prefix_hash,
    reading,
    writing,
)
from core.errors import SessionError, UsageError
from core.requests.answers import Message
from core.trust.sealed_files import CHUNK, write_sealed
from tests.support.search import SEARCH

SECRET = b"s" * 32
TOKENS = [5, 0, 70_000, 9]
SAID = (Message(role="user", content="hello"), Message(role="assistant", content="good day"))
SESSION = SessionFile(
    model="tiny",
    fingerprint="f" * 64,
    mlx_lm="1.2",
    kv_bits=None,
    tokens=TOKENS,
    prefix_hash=prefix_hash(TOKENS),
    caches=3,
    messages=SAID,
    created_at=1.5,
    macs=("a", "b"),
)

CACHES = {2: b"two" * 50_000, 0: b"", 1: b"one"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "sessions"


def save(path: Path, session: SessionFile = SESSION, caches: dict[int, bytes] = CACHES) -> Path:
    with writing(path, SECRET, session) as put:
        for index, data in caches.items():
            put(index, data)
    return path


def load(path: Path, secret: bytes = SECRET) -> tuple[SessionFile, dict[int, bytes]]:
    session, caches = reading(path, secret)
    return session, dict(caches)


def but(**changes: Any) -> SessionFile:
    return msgspec.structs.replace(SESSION, **changes)


def test_what_was_saved_is_read(folder: Path) -> None:
    path = save(path_of(folder, "a day out"))
    assert load(path) == (SESSION, CACHES)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert b"good day" not in path.read_bytes()
    with pytest.raises(SessionError, match="another Mac sealed it"):
        load(path, b"t" * 32)


def test_the_hash_of_a_prefix_is_that_of_its_bytes() -> None:
    assert prefix_hash([1, 258]) == sha256(bytes([1, 0, 0, 0, 2, 1, 0, 0])).digest()


@pytest.mark.slow
@settings(max_examples=150 * SEARCH, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
@pytest.mark.promise("P22")
def test_a_file_that_was_cut_or_changed_is_refused(folder: Path, data: st.DataObject) -> None:
    path = save(path_of(folder, "x"))
    whole = path.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    cut = whole[:at] + data.draw(st.binary(max_size=3))
    flipped = whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :]
    bad = data.draw(st.sampled_from([cut, flipped, whole + b"!"]))
    path.write_bytes(bad)
    if bad != whole:
        with pytest.raises(SessionError):
            load(path)


HEAD = b"MCK\x01"


def header(session: object = SESSION) -> bytes:
    encoded = msgspec.msgpack.encode(session)
    return HEAD + len(encoded).to_bytes(4, "little") + encoded


def cache(index: int, data: bytes = b"x", digest: bytes | None = None) -> bytes:
    return index.to_bytes(4, "little") + len(data).to_bytes(8, "little") + (digest or sha256(data).digest()) + data


LAST = END.to_bytes(4, "little")


@pytest.mark.parametrize(
    ("content", "difference"),
    [
        pytest.param(b"", "ends in the middle", id="empty"),
        pytest.param(b"MCX\x01" + header()[4:], "is not a session", id="something else"),
        pytest.param(b"MCK\x02" + header()[4:], "has format 2; .* formats up to 1. A newer", id="a new format"),
        pytest.param(HEAD + b"\xff\xff\xff\xff", "header of 4294967295 bytes", id="a header that is too long"),
        pytest.param(HEAD + b"\x01\x00\x00\x00\xc1", "header of x.mcs does not decode", id="a header that is none"),
        pytest.param(header({"model": "tiny"}), "does not decode", id="a header that lacks something"),
        pytest.param(header(but(tokens=[-1])), "does not decode", id="a token that cannot be"),
        pytest.param(header(but(tokens=[5, 0, 70_000])), "tokens .* don't match", id="tokens that do not hash"),
        pytest.param(header() + cache(0) + cache(1) + LAST, "cache 2 is missing", id="a layer is missing"),
        pytest.param(header() + cache(0) + cache(0), "cache 0 .* twice", id="a layer is there twice"),
        pytest.param(header() + cache(3), "cache 3 .* belongs to no layer", id="a layer that there is not"),
        pytest.param(header() + cache(1, digest=bytes(32)), "cache 1 .* was changed", id="a layer was changed"),
        pytest.param(header() + cache(0)[:-1], "ends in the middle", id="a layer is cut"),
        pytest.param(header() + cache(0) + cache(1) + cache(2), "ends in the middle", id="no end"),
        pytest.param(header(but(caches=0)) + LAST + b"!", "has bytes after its end", id="more than its end"),
    ],
)
def test_what_is_wrong_is_said(folder: Path, content: bytes, difference: str) -> None:
    folder.mkdir(mode=0o700)
    path = path_of(folder, "x")
    write_sealed(path, [content], SECRET, "session")
    with pytest.raises(SessionError, match=difference):
        load(path)


@pytest.mark.parametrize(
    ("session", "difference"),
    [
        pytest.param(but(model="huge", fingerprint="e" * 64), r"huge \(e{12}\), and tiny \(f{12}\)", id="model"),
        pytest.param(but(kv_bits=4), "in 4 bits, and tiny is loaded in full. Load it with --kv-bits 4", id="in bits"),
        pytest.param(but(mlx_lm="1.1"), "mlx-lm 1.1 made .* mlx-lm 1.2 runs", id="version of mlx-lm"),
    ],
)
@pytest.mark.promise("P22")
def test_another_model_or_cache_is_refused_with_both_named(session: SessionFile, difference: str) -> None:
    facts: dict[str, Any] = {"model": "tiny", "fingerprint": "f" * 64, "mlx_lm": "1.2", "kv_bits": None}
    check_fits(SESSION, **facts)
    check_fits(but(model="the same by another name"), **facts)
    with pytest.raises(SessionError, match=difference):
        check_fits(session, **facts)


GOOD_NAMES = ["a", "a day out", "Ärger 2", "…", "x.y", "日本", "n" * 32]
BAD_NAMES = [
    "",
    ".",
    "..",
    ".hidden",
    "a/b",
    "../../etc/x",
    "a\\b",
    "C:x",
    "n" * 33,
    " a",
    "a\n",
    "a\x1b[2J",
    "e\u0301",
]


@pytest.mark.parametrize("name", [pytest.param(name, id=ascii(name)) for name in GOOD_NAMES])
def test_a_name_is_the_name_of_a_file_in_the_folder(folder: Path, name: str) -> None:
    path = path_of(folder, name)
    assert path.parent == folder
    assert path.name == f"{name}.mcs"


@pytest.mark.parametrize("name", [pytest.param(name, id=ascii(name)) for name in BAD_NAMES])
def test_a_name_that_leads_elsewhere_or_cannot_be_shown_is_refused(folder: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be the name of a session"):
        path_of(folder, name)


def test_a_name_that_differs_in_case_only_is_refused(folder: Path) -> None:
    """On a Mac's disk it is the same file, and saving it would replace the other session."""
    save(path_of(folder, "Trip"))
    assert path_of(folder, "Trip").exists()
    with pytest.raises(UsageError, match="The session 'Trip' has the same letters"):
        path_of(folder, "trip")


def test_sessions_are_listed_with_why_one_cannot_be_read(folder: Path) -> None:
    assert list_sessions(folder, SECRET) == []
    good = save(path_of(folder, "good"))
    save(path_of(folder, "bad")).write_bytes(b"MCS1")
    bad, listed = list_sessions(folder, SECRET)
    assert (bad.name, bad.problem is not None) == ("bad", True)
    assert (listed.name, listed.model, listed.tokens, listed.created_at) == ("good", "tiny", 4, 1.5)
    assert listed.size_bytes == good.stat().st_size
    assert listed.problem is None


@pytest.mark.promise("T14")
def test_a_session_is_forgotten_with_its_key(folder: Path) -> None:
    path = save(path_of(folder, "x"))
    twin = folder / "twin"
    twin.hardlink_to(path)
    delete_session(folder, "x")
    assert twin.read_bytes()[:36] == bytes(36)
    for call in (delete_session, existing):
        with pytest.raises(UsageError, match="There is no session 'x'"):
            call(folder, "x")


def test_sessions_in_which_a_mac_took_part_are_forgotten(folder: Path) -> None:
    save(path_of(folder, "shared"))
    save(path_of(folder, "own"), but(macs=("b",)))
    save(path_of(folder, "lost")).write_bytes(b"?")
    assert forget_shared(folder, SECRET, {"a"}) == 1
    assert sorted(path.name for path in folder.iterdir()) == ["lost.mcs", "own.mcs"]


def whole_but(left_out: int, path: Path) -> None:
    save(path, caches={index: data for index, data in CACHES.items() if index != left_out})


def broken_off(path: Path) -> None:
    with writing(path, SECRET, but(created_at=9.0)) as put:
        put(0, b"x" * 3 * CHUNK)
        raise SessionError("The ring broke.")


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """Limit the size of every file that this process writes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def too_large(path: Path) -> None:
    with at_most(2 * CHUNK):
        save(path, caches={index: data * 9 for index, data in CACHES.items()})


@pytest.mark.parametrize(
    ("attempt", "why"),
    [
        pytest.param(lambda path: whole_but(1, path), "1 of 3 layers were not given", id="a layer is missing"),
        pytest.param(broken_off, "The ring broke", id="broken off"),
        pytest.param(too_large, "File too large. Make room", id="disk full"),
    ],
)
def test_what_cannot_be_saved_leaves_the_old_file_whole(
    folder: Path, attempt: Callable[[Path], None], why: str
) -> None:
    path = save(path_of(folder, "x"))
    with pytest.raises(SessionError, match=why):
        attempt(path)
    assert load(path) == (SESSION, CACHES)
    assert list(folder.iterdir()) == [path]


def test_what_a_killed_process_was_writing_is_removed(folder: Path) -> None:
    path = save(path_of(folder, "x"))
    (folder / "y.mcs.tmp").write_bytes(b"half of it")
    forget_unfinished(folder)
    assert list(folder.iterdir()) == [path]
