import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.errors import SealError
from core.trust.sealed_files import CHUNK, HEADER_BYTES, SEALED_CHUNK, forget, read_sealed, write_sealed
from tests.support.macs import mac
from tests.support.search import SEARCH

SECRET = b"s" * 32


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "conversation.mcs"


def seal(path: Path, data: bytes, secret: bytes = SECRET) -> bytes:
    write_sealed(path, [data], secret, "session")
    return path.read_bytes()


def opened(path: Path, secret: bytes = SECRET, purpose: str = "session") -> bytes:
    return b"".join(read_sealed(path, secret, purpose))


def private(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    path.chmod(0o600)
    return path


def plain(chunks: float) -> bytes:
    """Data with a different content in every chunk."""
    return b"".join(n.to_bytes(8, "big") for n in range(int(chunks * CHUNK) // 8))


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 3 * CHUNK + 17])
def test_what_was_sealed_is_read(path: Path, size: int) -> None:
    data = plain(4)[:size]
    whole = seal(path, data)
    assert opened(path) == data
    chunks = max(1, -(-size // CHUNK))
    assert len(whole) == HEADER_BYTES + size + 16 * chunks
    assert path.stat().st_mode & 0o777 == 0o600
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@settings(max_examples=30 * SEARCH, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, CHUNK + 5), max_size=6))
def test_how_the_data_comes_in_pieces_does_not_matter(path: Path, lengths: list[int]) -> None:
    pieces = [bytes([n % 251]) * length for n, length in enumerate(lengths)]
    write_sealed(path, iter(pieces), SECRET, "session")
    assert opened(path) == b"".join(pieces)


def test_the_bytes_are_those_of_the_specification(path: Path) -> None:
    data = plain(1.5)
    whole = seal(path, data)
    assert whole[:4] == b"MCS1"
    key = ChaCha20Poly1305(HKDF(SHA256(), 32, whole[4:36], b"macluster/1 session").derive(SECRET))
    assert key.decrypt(bytes(12), whole[36 : 36 + SEALED_CHUNK], None) == data[:CHUNK]
    assert key.decrypt(bytes(10) + b"\x01\x01", whole[36 + SEALED_CHUNK :], None) == data[CHUNK:]
    assert data[100:120] not in whole


def test_every_file_has_a_key_of_its_own(path: Path) -> None:
    assert seal(path, b"the same")[4:] != seal(path, b"the same")[4:]


def test_another_mac_another_purpose_and_other_files_are_refused(path: Path) -> None:
    seal(path, b"words", mac(0).secret("sessions"))
    assert opened(path, mac(0).secret("sessions")) == b"words"
    with pytest.raises(SealError, match="another Mac") as caught:
        opened(path, mac(1).secret("sessions"))
    assert "backup" in caught.value.fix
    with pytest.raises(SealError):
        opened(path, mac(0).secret("sessions"), "token log")
    for foreign in (b"", b"MCS1", b"MCS1" + bytes(31), b"MCT1" + bytes(60), b"PNG" + bytes(60)):
        with pytest.raises(SealError, match="not a sealed file"):
            opened(private(path, foreign))


def test_a_cut_file_is_refused_wherever_it_is_cut(path: Path) -> None:
    whole = seal(path, plain(2.25))
    edges = [HEADER_BYTES + n * SEALED_CHUNK for n in range(3)]
    for length in {n + d for n in (*edges, len(whole)) for d in (-17, -16, -1, 0, 1, 16, 17)} - {len(whole)}:
        private(path, whole[:length] if length < len(whole) else whole + bytes(length - len(whole)))
        with pytest.raises(SealError):
            opened(path)


def test_chunks_in_another_order_twice_or_left_out_are_refused(path: Path) -> None:
    whole = seal(path, plain(3.5))
    head, body = whole[:HEADER_BYTES], whole[HEADER_BYTES:]
    chunks = [body[at : at + SEALED_CHUNK] for at in range(0, len(body), SEALED_CHUNK)]
    for order in ([1, 0, 2, 3], [0, 0, 1, 2, 3], [0, 2, 3], [1, 2, 3], [3], [0, 1, 2], [0, 1, 3, 2], [0, 1, 2, 3, 3]):
        with pytest.raises(SealError):
            opened(private(path, head + b"".join(chunks[n] for n in order)))
    assert opened(private(path, head + b"".join(chunks))) == plain(3.5)


def test_a_splice_of_two_files_of_one_mac_is_refused(path: Path, tmp_path: Path) -> None:
    one, two = seal(path, plain(2.5)), seal(tmp_path / "two", bytes(len(plain(2.5))))
    for at in (20, HEADER_BYTES, HEADER_BYTES + SEALED_CHUNK, HEADER_BYTES + 2 * SEALED_CHUNK):
        with pytest.raises(SealError):
            opened(private(path, one[:at] + two[at:]))


@settings(max_examples=150 * SEARCH, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 10**9), st.integers(0, 7))
def test_one_flipped_bit_is_never_accepted(path: Path, position: int, bit: int) -> None:
    damaged = bytearray(seal(path, plain(1.01)))
    damaged[position % len(damaged)] ^= 1 << bit
    private(path, bytes(damaged))
    with pytest.raises(SealError):
        opened(path)


def test_a_chunk_is_verified_before_it_is_given_out(path: Path) -> None:
    damaged = bytearray(seal(path, plain(2.5)))
    damaged[HEADER_BYTES + SEALED_CHUNK + 5] ^= 1
    reading = read_sealed(private(path, bytes(damaged)), SECRET, "session")
    assert next(reading) == plain(1)
    with pytest.raises(SealError, match="chunk 1"):
        next(reading)


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """Limit the size of every file that this process writes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_that_may_not_grow_leaves_the_old_one_whole(path: Path) -> None:
    before = seal(path, plain(0.5))
    with at_most(2 * CHUNK), pytest.raises(SealError, match="cannot be written: File too large"):
        seal(path, plain(5))
    assert path.read_bytes() == before
    assert opened(path) == plain(0.5)
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    mount = tmp_path / "disk"
    mount.mkdir(0o700)
    made = os.geteuid() == 0 and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "tmpfs", mount], capture_output=True, check=False
    )
    if not made or made.returncode:
        pytest.skip("mounting a tmpfs needs root")
    try:
        yield mount
    finally:
        subprocess.run(["umount", mount], check=True)


def test_a_full_disk_leaves_the_old_file_whole_and_can_still_forget_it(tiny_disk: Path) -> None:
    path = tiny_disk / "conversation.mcs"
    before = seal(path, plain(1.5))
    with pytest.raises(SealError, match="No space left") as caught:
        seal(path, plain(3.5))
    assert "Make room" in caught.value.fix
    assert path.read_bytes() == before
    assert [p.name for p in tiny_disk.iterdir()] == [path.name]
    seal(path, plain(1))
    forget(path)
    assert not list(tiny_disk.iterdir())


def test_a_source_that_fails_leaves_the_old_file_whole(path: Path) -> None:
    def source() -> Iterator[bytes]:
        yield plain(2)
        raise RuntimeError("the stage is gone")

    before = seal(path, b"before")
    with pytest.raises(RuntimeError, match="stage is gone"):
        write_sealed(path, source(), SECRET, "session")
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_what_a_crash_left_is_written_over(path: Path) -> None:
    path.with_name(path.name + ".tmp").write_bytes(b"half of it")
    seal(path, b"words")
    assert opened(path) == b"words"
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_deletion_forgets_the_key(path: Path, tmp_path: Path) -> None:
    """A hard link represents the copy that a disk keeps of a deleted file."""
    seal(path, b"words")
    os.link(path, tmp_path / "kept by the disk")
    os.link(private(path.with_name(path.name + ".tmp"), b"MCS1" + bytes(99)), tmp_path / "half")
    forget(path)
    assert not path.exists()
    assert not path.with_name(path.name + ".tmp").exists()
    with pytest.raises(SealError, match="not a sealed file"):
        opened(tmp_path / "kept by the disk")
    assert (tmp_path / "half").read_bytes()[:4] == bytes(4)
    forget(path)


def test_writing_anew_forgets_the_key_of_the_old_version(path: Path, tmp_path: Path) -> None:
    seal(path, b"words that were taken back")
    os.link(path, tmp_path / "kept by the disk")
    seal(path, b"words")
    assert opened(path) == b"words"
    with pytest.raises(SealError, match="not a sealed file"):
        opened(tmp_path / "kept by the disk")


def test_who_reads_the_old_version_reads_it_to_its_end(path: Path) -> None:
    seal(path, plain(3))
    reading = read_sealed(path, SECRET, "session")
    begun = next(reading)
    seal(path, b"words")
    assert begun + b"".join(reading) == plain(3)


def test_links_and_files_of_others_are_not_touched(path: Path, tmp_path: Path) -> None:
    target = private(tmp_path / "target", b"something dear")
    path.symlink_to(target)
    for act in (lambda: forget(path), lambda: seal(path, b"x"), lambda: opened(path)):
        with pytest.raises(SealError, match=r"cannot be opened|symbolic link"):
            act()
    assert target.read_bytes() == b"something dear"
    path.unlink()
    seal(path, b"words")
    path.chmod(0o640)
    with pytest.raises(SealError, match="Other users"):
        opened(path)


def test_a_file_whose_key_cannot_be_overwritten_goes_all_the_same_and_says_so(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    seal(path, b"words")
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(SealError, match="could not be overwritten: No space left") as caught:
        forget(path)
    assert "FileVault" in caught.value.fix
    assert not path.exists()
