"""Stored conversations: sealed, written whole or not at all, and readable by their owner only."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import msgspec
import pytest

from core.errors import SessionError, UsageError
from core.node.disks.conversations import MAX_BYTES, Conversations
from core.requests.conversations import (
    ChatOptions,
    Conversation,
    ConversationId,
    ConversationTitle,
    KeptTurn,
    SearchText,
)

SECRET = bytes(range(32))
CANARY = "the canary sings at midnight"
ONE, OTHER = "1" * 32, "2" * 32


def conversation(name: str = ONE, *, text: str = CANARY, at: float = 2.0) -> Conversation:
    turns = (
        KeptTurn(role="user", text=text, at=1.0),
        KeptTurn(role="assistant", text=f"{text}!", at=1.0, request_id="r1", tokens=7, tokens_per_s=18.25),
    )
    options = ChatOptions(system=CANARY)
    return Conversation(
        id=name, title=CANARY, model="tiny", created_at=1.0, changed_at=at, options=options, turns=turns
    )


@pytest.fixture
def shelf(tmp_path: Path) -> Conversations:
    return Conversations(tmp_path / "conversations", SECRET, limit=2)


def only_file(folder: Path) -> Path:
    (path,) = (folder / "conversations").iterdir()
    return path


@pytest.mark.promise("T14")
async def test_what_is_written_is_read_and_listed_and_nothing_of_it_is_clear(
    shelf: Conversations, tmp_path: Path
) -> None:
    assert await shelf.all() == []
    info = await shelf.write(conversation())
    assert await shelf.read(ConversationId(id=ONE)) == conversation()
    assert await shelf.all() == [info]
    assert (info.title, info.messages, info.tokens, info.ending) == (CANARY, 2, 7, f"{CANARY}!")
    assert info.last_request == "r1"
    path = only_file(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert CANARY.encode() not in path.read_bytes()
    assert b"tiny" not in path.read_bytes()
    assert path.name == f"{ONE}.mcv"


async def test_one_is_replaced_renamed_and_deleted_with_its_key(shelf: Conversations, tmp_path: Path) -> None:
    await shelf.write(conversation())
    await shelf.write(conversation(text="again", at=3.0))
    await shelf.rename(ConversationTitle(id=ONE, title="other"))
    found = await shelf.read(ConversationId(id=ONE))
    assert (found.title, found.turns[0].text, found.changed_at) == ("other", "again", 3.0)
    await shelf.write(conversation(OTHER, at=9.0))
    assert [info.id for info in await shelf.all()] == [OTHER, ONE]
    path = tmp_path / "conversations" / f"{ONE}.mcv"
    with path.open("rb") as held:  # as a snapshot or a slow disk would hold it
        await shelf.delete(ConversationId(id=ONE))
        assert held.read(36) == bytes(36), "the salt is overwritten"
    with pytest.raises(UsageError):
        await shelf.read(ConversationId(id=ONE))
    with pytest.raises(UsageError):
        await shelf.delete(ConversationId(id=ONE))


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        pytest.param("flip", "was changed or cut", id="one-bit"),
        pytest.param("cut", "was changed or cut", id="cut"),
        pytest.param("empty", "not a sealed file", id="empty"),
        pytest.param("swap", "another conversation", id="under-another-name"),
        pytest.param("open", "Other users", id="others-can-read-it"),
    ],
)
async def test_a_damaged_file_says_why_and_spoils_no_other(
    shelf: Conversations, tmp_path: Path, harm: str, says: str
) -> None:
    await shelf.write(conversation())
    path = only_file(tmp_path)
    data = path.read_bytes()
    match harm:
        case "flip":
            path.write_bytes(data[:60] + bytes([data[60] ^ 1]) + data[61:])
        case "cut":
            path.write_bytes(data[:-5])
        case "empty":
            path.write_bytes(b"")
        case "swap":
            shutil.copy(path, path.with_name(f"{OTHER}.mcv"))
            path.unlink()
        case "open":
            path.chmod(0o644)
    name = OTHER if harm == "swap" else ONE
    with pytest.raises(SessionError, match=says):
        await shelf.read(ConversationId(id=name))
    await shelf.write(conversation("3" * 32))
    damaged = [info for info in await shelf.all() if info.problem]
    assert len(await shelf.all()) == 2
    assert [info.id for info in damaged] == [name]
    assert damaged[0].problem
    assert says in damaged[0].problem.what
    await shelf.delete(ConversationId(id=name))


async def test_another_macs_key_opens_nothing(shelf: Conversations, tmp_path: Path) -> None:
    await shelf.write(conversation())
    stranger = Conversations(tmp_path / "conversations", bytes(32))
    with pytest.raises(SessionError, match="another Mac"):
        await stranger.read(ConversationId(id=ONE))


async def test_limits_of_number_and_size_hold_and_what_is_there_can_still_grow(shelf: Conversations) -> None:
    await shelf.write(conversation())
    await shelf.write(conversation(OTHER))
    with pytest.raises(UsageError, match="2 conversations"):
        await shelf.write(conversation("3" * 32))
    await shelf.write(conversation(text="more"))
    with pytest.raises(UsageError, match="bytes"):
        await shelf.write(conversation(text="x" * MAX_BYTES))
    assert (await shelf.read(ConversationId(id=ONE))).turns[0].text == "more", "the old file stays"


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "A" * 32, "1" * 31, "1" * 32 + "\n", "1" * 33])
def test_no_name_but_a_random_id_reaches_a_path(name: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"id": name}, ConversationId)


async def test_a_folder_that_others_can_enter_is_refused(shelf: Conversations, tmp_path: Path) -> None:
    (tmp_path / "conversations").mkdir()
    os.chmod(tmp_path / "conversations", 0o755)
    with pytest.raises(SessionError, match="Other users"):
        await shelf.write(conversation())


async def test_a_foreign_file_is_left_alone(shelf: Conversations, tmp_path: Path) -> None:
    await shelf.write(conversation())
    (tmp_path / "conversations" / "notes.mcv").write_bytes(b"mine")
    assert [info.id for info in await shelf.all()] == [ONE]


async def test_what_an_older_macluster_kept_opens_and_is_kept_on(shelf: Conversations, tmp_path: Path) -> None:
    (tmp_path / "conversations").mkdir(mode=0o700)
    path = tmp_path / "conversations" / f"{ONE}.mcv"
    path.touch(mode=0o600)
    path.write_bytes((Path(__file__).parent / "stored" / "conversation-format-1.mcv").read_bytes())
    (info,) = await shelf.all()
    assert (info.problem, info.title, info.messages, info.tokens) == (None, "why? (edited)", 2, 2)
    old = await shelf.read(ConversationId(id=ONE))
    assert [turn.text for turn in old.shown] == ["why?", "one two"]
    assert (old.options.system, old.options.sampling.seed) == ("Be brief.", 4)
    await shelf.rename(ConversationTitle(id=ONE, title="why?"))
    assert (await shelf.read(ConversationId(id=ONE))).turns == old.turns


async def test_a_search_looks_at_every_message_of_every_branch(shelf: Conversations, tmp_path: Path) -> None:
    hidden = KeptTurn(role="assistant", text="The Treasure lies elsewhere", at=1.0, back=2)
    one = conversation()
    await shelf.write(msgspec.structs.replace(one, turns=(*one.turns, hidden), newer=1))
    await shelf.write(conversation(OTHER, text="nothing"))
    for text, found in (("treasure", [ONE]), ("NOTHING!", [OTHER]), ("tiny", [ONE, OTHER]), ("no such", [])):
        assert sorted(info.id for info in await shelf.holding(SearchText(text=text))) == found
    (tmp_path / "conversations" / f"{OTHER}.mcv").write_bytes(b"")
    assert [info.id for info in await shelf.holding(SearchText(text="n"))] == [ONE], "what cannot be read holds nothing"


@pytest.mark.parametrize(
    ("backs", "newer", "path"),
    [
        pytest.param((1, 1, 1, 1), 0, (0, 1, 2, 3), id="a-line"),
        pytest.param((1, 1, 2, 1), 0, (0, 2, 3), id="another-answer"),
        pytest.param((1, 1, 2, 1), 2, (0, 1), id="the-first-answer"),
        pytest.param((1, 2, 3, 9), 0, (3,), id="beside-the-first-question"),
        pytest.param((1, 1), 9, (), id="nothing-is-shown"),
    ],
)
def test_what_is_shown_of_a_conversation_is_one_path(backs: tuple[int, ...], newer: int, path: tuple[int, ...]) -> None:
    turns = tuple(KeptTurn(role="user", text=str(n), at=1.0, back=back) for n, back in enumerate(backs))
    kept = Conversation(id=ONE, title="t", created_at=1.0, changed_at=1.0, turns=turns, newer=newer)
    assert kept.path == path
    assert [(turn.text, turn.back) for turn in kept.shown] == [(str(at), 1) for at in path]
