"""Stored conversations: sealed, written whole or not at all, and readable by their owner only."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import SessionError, UsageError
from core.node.disks.conversation_file import MAGIC, ConversationFile
from core.node.disks.conversations import Conversations
from core.requests.conversations import (
    ChatOptions,
    Conversation,
    ConversationId,
    KeptTurn,
    SearchText,
)
from core.trust.sealed_files import whole_records, write_sealed

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
    return Conversations(tmp_path / "conversations", SECRET)


def only_file(folder: Path) -> Path:
    (path,) = (folder / "conversations").glob("*.mcv")
    return path


def turn(text: str, role: str = "user", back: int = 1) -> KeptTurn:
    return msgspec.convert({"role": role, "text": text, "at": 1.0, "back": back}, KeptTurn)


def disk_bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


@pytest.mark.promise("T14")
async def test_what_is_written_is_read_and_listed_and_nothing_of_it_is_clear(
    shelf: Conversations, tmp_path: Path
) -> None:
    assert await shelf.all() == []
    await shelf.write(conversation())
    assert await shelf.read(ConversationId(id=ONE)) == conversation()
    (info,) = await shelf.all()
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
    await shelf.write(msgspec.structs.replace(later(conversation(at=3.0), 3.0, 2), title="other"))
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


def later(before: Conversation, at: float, keep: int, *turns: KeptTurn, draft: str = "") -> Conversation:
    """A change of a conversation."""
    return msgspec.structs.replace(before, since=before.changed_at, changed_at=at, keep=keep, turns=turns, draft=draft)


async def test_a_question_adds_only_itself_however_long_the_conversation_is(
    shelf: Conversations, tmp_path: Path
) -> None:
    long = conversation(text="x" * (9 << 20))
    await shelf.write(long)
    path = only_file(tmp_path)
    before = path.read_bytes()
    asked, empty, answer = turn("why? " * 20), turn("", "assistant"), turn("so. " * 80, "assistant")
    await shelf.write(step := later(long, 3.0, 2, asked, empty))
    await shelf.write(step := later(step, 4.0, 3, empty))
    await shelf.write(later(step, 5.0, 3, answer))
    after = path.read_bytes()
    assert after.startswith(before), "what was there is not written again"
    assert len(after) - len(before) <= 3 * len(msgspec.msgpack.encode((asked, answer)))
    found = await Conversations(path.parent, SECRET).read(ConversationId(id=ONE))
    assert (found.turns, found.changed_at, found.title) == ((*long.turns, asked, answer), 5.0, CANARY)


@pytest.mark.promise("T14")
async def test_a_draft_has_a_file_of_its_own_which_goes_with_it(shelf: Conversations, tmp_path: Path) -> None:
    await shelf.write(conversation())
    before = only_file(tmp_path).stat().st_size
    await shelf.write(step := later(conversation(), 3.0, 2, draft="half a " * 200))
    await shelf.write(step := later(step, 4.0, 2, draft=CANARY))
    assert only_file(tmp_path).stat().st_size - before < 200
    assert CANARY.encode() not in disk_bytes(tmp_path)
    (listed,) = await shelf.all()
    assert (listed.has_draft, listed.changed_at) == (True, 4.0)
    assert [one.id for one in await shelf.holding(SearchText(text=CANARY.upper()))] == [ONE]
    fresh = Conversations(tmp_path / "conversations", SECRET)
    assert (await fresh.read(ConversationId(id=ONE))).draft == CANARY
    await fresh.write(later(step, 5.0, 2))
    assert ((await fresh.read(ConversationId(id=ONE))).draft, (await fresh.all())[0].has_draft) == ("", False)
    assert not [*(tmp_path / "conversations").glob("*.mcd")]


async def test_a_change_of_what_another_screen_changed_is_refused(shelf: Conversations) -> None:
    await shelf.write(conversation())
    await shelf.write(later(conversation(), 3.0, 2, turn("a")))
    for since, keep in ((2.0, 2), (3.0, 4)):
        with pytest.raises(UsageError, match="changed elsewhere"):
            await shelf.write(later(conversation(at=since), 4.0, keep))
    with pytest.raises(UsageError, match="not on this Mac"):
        await shelf.write(later(conversation(OTHER), 4.0, 1))
    assert len((await shelf.read(ConversationId(id=ONE))).turns) == 3


changes = st.lists(
    st.tuples(st.integers(0, 6), st.lists(st.builds(turn, st.text(max_size=9)), max_size=3), st.text(max_size=5)),
    max_size=6,
)


@pytest.mark.promise("P7")
@given(changes=changes, data=st.data())
def test_what_a_crash_cuts_off_is_at_most_the_last_change(
    tmp_path_factory: pytest.TempPathFactory,
    changes: list[tuple[int, list[KeptTurn], str]],
    data: st.DataObject,
) -> None:
    file = ConversationFile(tmp_path_factory.mktemp("c") / "conversations", ONE, SECRET)
    states = [conversation()]
    file.write(states[0])
    sizes = [file.path.stat().st_size]
    for at, (most, turns, title) in enumerate(changes):
        keep, before = min(most, len(states[-1].turns)), states[-1]
        change = msgspec.structs.replace(later(before, 3.0 + at, keep, *turns), title=title)
        file.write(change)
        if not keep:  # the file is replaced at once
            states, sizes = [], []
        states.append(msgspec.structs.replace(change, turns=(*before.turns[:keep], *turns), keep=0, since=0.0))
        sizes.append(file.path.stat().st_size)
    whole = file.path.read_bytes()
    size = data.draw(st.integers(0, len(whole)))
    file.path.write_bytes(whole[:size])
    if size < sizes[0]:
        with pytest.raises(SessionError, match="not a" if size < 3 else "was changed or cut"):
            file.read()
        return
    found = file.read()
    known = states[max(n for n, each in enumerate(sizes) if each <= size)]
    assert found == msgspec.structs.replace(known, keep=0, since=0.0)
    file.write(later(found, 99.0, len(found.turns), turn("after")))
    assert file.read().turns == (*found.turns, turn("after"))
    records = {*whole_records(whole), *whole_records(file.path.read_bytes())}
    assert len({each[:12] for each in records}) == len(records), "no nonce is used again"


async def test_a_list_reads_only_what_changed_since_the_last_one(
    shelf: Conversations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{number:x}" * 32 for number in range(16)]
    for name in names:
        await shelf.write(conversation(name, text=f"said in {name}"))
    first = await shelf.all()
    read: list[str] = []
    real = ConversationFile.read

    def reading(file: ConversationFile) -> Conversation:
        read.append(file.path.stem)
        return real(file)

    monkeypatch.setattr(ConversationFile, "read", reading)
    again = Conversations(tmp_path / "conversations", SECRET)
    assert await again.all() == first
    assert [one.id for one in await again.holding(SearchText(text=f"IN {names[3]}"))] == [names[3]]
    assert read == []
    await again.write(conversation(names[3], text="other"))
    assert [one.id for one in await again.holding(SearchText(text="other"))] == [names[3]]
    assert read == [names[3]]
    (tmp_path / "conversations" / "3.mci").write_bytes(b"spoilt")
    assert len(await again.all()) == 16
    assert read == [names[3]] * 2


@pytest.mark.promise("T14")
async def test_the_index_is_sealed_and_forgets_what_is_deleted(shelf: Conversations, tmp_path: Path) -> None:
    await shelf.write(conversation())
    await shelf.write(conversation(OTHER))
    await shelf.all()
    index = tmp_path / "conversations" / "1.mci"
    assert stat.S_IMODE(index.stat().st_mode) == 0o600
    assert CANARY.encode() not in disk_bytes(tmp_path)
    with index.open("rb") as held:
        await shelf.delete(ConversationId(id=ONE))
        assert held.read(36) == bytes(36), "its key is overwritten"
    assert [one.id for one in await shelf.all()] == [OTHER]
    assert not index.exists()


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
    more = later(old, 9.0, len(old.turns), turn("and then?"))
    await shelf.write(msgspec.structs.replace(more, title="why?"))
    assert (await shelf.read(ConversationId(id=ONE))).turns == (*old.turns, turn("and then?"))
    assert path.read_bytes().startswith(MAGIC), "it is in today's format now"


async def test_the_first_change_carries_over_all_that_the_last_format_held(
    shelf: Conversations, tmp_path: Path
) -> None:
    (tmp_path / "conversations").mkdir(mode=0o700)
    old = msgspec.structs.replace(conversation(), draft="half a question")
    path = tmp_path / "conversations" / f"{ONE}.mcv"
    write_sealed(path, [b"MCV\x02", msgspec.msgpack.encode(old)], SECRET, "conversation")
    assert await shelf.read(ConversationId(id=ONE)) == old
    await shelf.write(later(old, 3.0, 2, turn("more"), draft=old.draft))
    found = await Conversations(tmp_path / "conversations", SECRET).read(ConversationId(id=ONE))
    assert found == msgspec.structs.replace(old, changed_at=3.0, turns=(*old.turns, turn("more")))
    assert path.read_bytes().startswith(MAGIC)


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
