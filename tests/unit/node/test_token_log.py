from __future__ import annotations

import os
import resource
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import SealError
from core.node.answers import token_log
from core.node.answers.token_log import (
    ENDED,
    AnswerEnd,
    AnswerRecord,
    MacsJoined,
    Record,
    TokenLog,
    Written,
    forget_shared,
    read_token_log,
    unfinished,
)
from core.requests.answers import Message
from core.sampling_options import Sampling
from tests.support.search import SEARCH

SECRET = b"s" * 32
PROMPT = [101, 70_001, 70_002, 70_003, 70_004, 102]
TOKENS = [0, 5, 300, 70_005, 2**31]


def answer_record(request_id: str = "ab" * 16) -> AnswerRecord:
    return AnswerRecord(
        request_id=request_id,
        model="canary-model",
        fingerprint="canary-print",
        prompt=PROMPT,
        sampling=Sampling(temperature=0.5, top_p=0.9, seed=7, logit_bias={300: -1.5}, logprobs=2),
        macs=("studio", "mini"),
        messages=(Message(role="user", content="canary"),),
        max_tokens=99,
        min_tokens=2,
        eos=[2],
        stop=("canary",),
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    log = TokenLog(tmp_path / "tokens", SECRET, answer_record())
    for token in TOKENS:
        log.append(token)
    log.close()
    return log.path


@pytest.mark.parametrize("count", [0, 1, 16, 40])
def test_what_was_written_is_read_even_before_it_is_closed(tmp_path: Path, count: int) -> None:
    log = TokenLog(tmp_path, SECRET, answer_record())
    for token in range(count):
        log.append(token)
    assert read_token_log(log.path, SECRET)[:2] == (answer_record(), list(range(count)))
    log.close()


def test_a_cut_leaves_a_prefix_or_says_so(path: Path) -> None:
    whole = path.read_bytes()
    kept: set[int] = set()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        try:
            asked, tokens = read_token_log(path, SECRET)[:2]
        except SealError:
            assert not kept, "once the first record is whole, a cut never costs the file"
            continue
        assert (asked, tokens) == (answer_record(), TOKENS[: len(tokens)])
        kept.add(len(tokens))
    assert kept == set(range(len(TOKENS)))


def test_a_flipped_byte_never_changes_a_token(path: Path) -> None:
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        try:
            asked, tokens = read_token_log(path, SECRET)[:2]
        except SealError:
            continue
        # a larger length reads as a cut: the rest is missing, nothing is false
        assert asked == answer_record()
        assert tokens == TOKENS[: len(tokens)] != TOKENS


def test_records_of_another_secret_or_another_file_are_refused(path: Path, tmp_path: Path) -> None:
    with pytest.raises(SealError, match="changed"):
        read_token_log(path, b"t" * 32)
    other = TokenLog(tmp_path, SECRET, answer_record("cd" * 16))
    other.close()
    other.path.write_bytes(other.path.read_bytes()[:36] + path.read_bytes()[36:])
    with pytest.raises(SealError, match="changed"):
        read_token_log(other.path, SECRET)
    for foreign in (b"", b"MCT1", b"MCS1" + bytes(64), b"PNG" + bytes(64), bytes(64)):
        path.write_bytes(foreign)
        with pytest.raises(SealError):
            read_token_log(path, SECRET)


@pytest.mark.promise("T14")
def test_nothing_of_the_prompt_or_the_answer_lies_in_clear(path: Path) -> None:
    data = path.read_bytes()
    clear = [b"canary", msgspec.msgpack.encode(PROMPT)[1:], *(msgspec.msgpack.encode(t) for t in PROMPT[1:-1])]
    assert not [piece for piece in clear if piece in data]


def test_only_this_user_can_read_it_and_no_file_is_written_over(path: Path, tmp_path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    before = path.read_bytes()
    with pytest.raises(FileExistsError):
        TokenLog(path.parent, SECRET, answer_record())
    assert path.read_bytes() == before
    target = tmp_path / "elsewhere"
    (path.parent / f"{'ef' * 16}.mct").symlink_to(target)
    with pytest.raises(FileExistsError):
        TokenLog(path.parent, SECRET, answer_record("ef" * 16))
    assert not target.exists()


def test_the_bytes_are_those_of_the_format(path: Path) -> None:
    data = path.read_bytes()
    key = ChaCha20Poly1305(HKDF(SHA256(), 32, data[4:36], b"macluster/1 token log").derive(SECRET))
    length = int.from_bytes(data[36:40], "little")
    assert (
        msgspec.msgpack.decode(key.decrypt(bytes(12), data[40 : 40 + length], b"MCT1"), type=AnswerRecord)
        == answer_record()
    )


def test_forgetting_deletes_the_log_and_its_key(tmp_path: Path) -> None:
    """A hard link represents the copy that a disk keeps of a deleted file."""
    log = TokenLog(tmp_path / "tokens", SECRET, answer_record())
    log.append(1)
    os.link(log.path, tmp_path / "kept by the disk")
    log.forget()
    assert not list((tmp_path / "tokens").iterdir())
    with pytest.raises(SealError, match="not a token log"):
        read_token_log(tmp_path / "kept by the disk", SECRET)


def test_a_log_that_is_a_link_or_open_to_others_is_refused_with_the_cure(path: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(SealError, match="symbolic link"):
        read_token_log(tmp_path / "link", SECRET)
    path.chmod(0o644)
    with pytest.raises(SealError, match="Other users") as caught:
        read_token_log(path, SECRET)
    assert "chmod 600" in caught.value.fix
    path.parent.chmod(0o755)
    with pytest.raises(SealError, match="Other users"):
        TokenLog(path.parent, SECRET, answer_record("cd" * 16))


def test_an_answer_that_is_older_than_its_sampling_still_tells_who_took_part(tmp_path: Path) -> None:
    class Older(msgspec.Struct, kw_only=True):
        request_id: str = "ab" * 16
        model: str = "m"
        fingerprint: str = "f"
        prompt: list[int]
        temperature: float = 0.5
        seed: int | None = None
        macs: tuple[str, ...] = ("mini",)

    log = TokenLog(tmp_path, SECRET, Older(prompt=PROMPT))  # type: ignore[arg-type]
    log.close()
    assert read_token_log(log.path, SECRET).macs == {"mini"}
    assert not unfinished(tmp_path, SECRET), "too little is known to go on with it"


def test_a_full_disk_leaves_no_half_of_a_log(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            TokenLog(tmp_path / "tokens", SECRET, answer_record())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list((tmp_path / "tokens").iterdir())


RECORDS = st.one_of(
    st.integers(0, 2**31),
    st.text(min_size=1),
    st.builds(MacsJoined, st.lists(st.sampled_from(["air", "cube", "mbp"]), max_size=2).map(tuple)),
    st.builds(AnswerEnd, st.sampled_from(["stop", "length", "cancelled"])),
)


def put(log: TokenLog, records: Sequence[Record]) -> None:
    for record in records:
        match record:
            case int():
                log.append(record)
            case str():
                log.say(record)
            case MacsJoined(macs=macs):
                log.join(macs)
            case AnswerEnd():
                log._write(record)


@settings(max_examples=40 * SEARCH)
@given(records=st.lists(RECORDS, max_size=12), data=st.data())
def test_any_cut_of_any_records_gives_what_is_before_it(records: list[Record], data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        log = TokenLog(Path(folder) / "tokens", SECRET, answer_record())
        sizes = [log.path.stat().st_size]
        for record in records:
            put(log, [record])
            sizes.append(log.path.stat().st_size)
        log.close()
        cut = data.draw(st.integers(sizes[0], sizes[-1]))
        os.truncate(log.path, cut)
        kept = records[: sum(size <= cut for size in sizes[1:])]
        written = read_token_log(log.path, SECRET)
        assert written.tokens == [r for r in kept if isinstance(r, int)]
        assert written.text == "".join(r for r in kept if isinstance(r, str))
        assert written.macs == {"studio", "mini"}.union(*(r.macs for r in kept if isinstance(r, MacsJoined)))
        ends = [r.reason for r in kept if isinstance(r, AnswerEnd)]
        assert written.ended == (ends[-1] if ends else None)
        assert bool(unfinished(log.path.parent, SECRET)) == (not ends)


def test_what_has_not_ended_is_unfinished_and_the_newest_comes_first(tmp_path: Path) -> None:
    for number, reason in enumerate((None, "stop", None, "cancelled", None)):
        log = TokenLog(tmp_path, SECRET, answer_record(f"{number}" * 32))
        log.append(number)
        log.close(reason)  # type: ignore[arg-type]
        os.utime(log.path, (number, number))
    (tmp_path / "foreign.mct").write_bytes(b"MCT1")
    (tmp_path / "foreign.mct").chmod(0o600)
    assert [(w.tokens, w.at) for w in unfinished(tmp_path, SECRET)] == [([4], 4.0), ([2], 2.0), ([0], 0.0)]
    assert not unfinished(tmp_path / "nowhere", SECRET)


def test_a_log_that_has_ended_is_not_read_to_find_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        TokenLog(tmp_path, SECRET, answer_record(f"{number}" * 32)).close("stop" if number else None)
    older = tmp_path / f"{'1' * 32}.mct"
    older.with_suffix(ENDED).rename(older)  # as an older macluster, or a crash, leaves it
    read: list[str] = []

    def reading(path: Path, secret: bytes) -> Written:
        read.append(path.name[0])
        return read_token_log(path, secret)

    monkeypatch.setattr(token_log, "read_token_log", reading)
    for expected in (["0", "1"], ["0"]):
        assert [each.record.request_id[0] for each in unfinished(tmp_path, SECRET)] == ["0"]
        assert sorted(read) == expected
        read.clear()
    assert not unfinished(tmp_path, SECRET, ["0" * 32])
    assert not read


@pytest.mark.promise("P17")
def test_a_mac_that_comes_later_takes_part_before_it_sees_a_thing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = TokenLog(tmp_path, SECRET, answer_record())
    log.append(1)
    forced: list[int] = []
    monkeypatch.setattr(os, "fsync", forced.append)
    log.join({"air"})
    assert len(forced) == 1
    assert forget_shared(tmp_path, SECRET, {"cube"}) == 0
    assert forget_shared(tmp_path, SECRET, {"air", "cube"}) == 1
    log.close()
    assert not list(tmp_path.iterdir())


def test_it_is_forced_to_disk_when_asked_also_where_it_is_closed_meanwhile_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = TokenLog(tmp_path, SECRET, answer_record())
    forced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda fd: forced.append(os.fstat(fd).st_ino))
    for token in range(3):
        log.append(token)
    assert (log.unsynced, forced) == (3, [])
    force = log.syncing()
    log.append(3)
    assert log.unsynced == 1, "what comes while it is forced is not known to be"
    log.close("stop")
    force()
    assert (log.unsynced, forced) == (0, [log.path.stat().st_ino] * 2), "the end, and what was asked for before it"


@pytest.mark.promise("P17")
def test_going_on_takes_the_place_of_the_old_log_and_forgets_its_key(path: Path, tmp_path: Path) -> None:
    os.link(path, tmp_path / "kept by the disk")
    with path.open("ab") as cut:
        cut.write(b"half a record")
    salt = path.read_bytes()[4:36]
    path.with_suffix(".mct.tmp").write_bytes(b"what a crash left")
    log = TokenLog.going_on(path.parent, SECRET, answer_record(), TOKENS, "so far")
    assert [each.name for each in path.parent.iterdir()] == [path.name] == [log.path.name]
    assert path.read_bytes()[4:36] not in (salt, bytes(32))
    log.append(9)
    log.say(", and more")
    log.close("length")
    written = read_token_log(log.path, SECRET)
    assert written[:3] == (answer_record(), [*TOKENS, 9], "so far, and more")
    assert written.ended == "length"
    with pytest.raises(SealError, match="not a token log"):
        read_token_log(tmp_path / "kept by the disk", SECRET)


def test_going_on_with_what_is_not_there_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "tokens").mkdir(mode=0o700)
    with pytest.raises(FileNotFoundError):
        TokenLog.going_on(tmp_path / "tokens", SECRET, answer_record(), TOKENS, "")
    assert not list((tmp_path / "tokens").iterdir())


@pytest.mark.parametrize("room", range(0, 700, 23))
def test_a_disk_that_fills_while_it_is_gone_on_with_leaves_the_old_log_whole(path: Path, room: int) -> None:
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        with suppress(OSError):
            TokenLog.going_on(path.parent, SECRET, answer_record(), TOKENS * 9, "")
            raise AssertionError("the room is not scarce")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_nothing_is_written_behind_a_record_that_was_not(tmp_path: Path) -> None:
    log = TokenLog(tmp_path, SECRET, answer_record())
    log.append(1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log.path.stat().st_size + 7, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            log.append(2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with pytest.raises(OSError, match="File too large"):
        log.append(3)
    with pytest.raises(OSError, match="File too large"):
        log.close("stop")
    assert read_token_log(log.path, SECRET).tokens == [1]
    assert read_token_log(log.path, SECRET).ended is None
