"""Conversations in the tui without a node: titles, edits, saved and exported text, the sampling form, saving."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from rich.cells import cell_len
from textual.pilot import Pilot

from core.constraint import Constraint
from core.errors import NodeError, UsageError
from core.events import Snapshot
from core.requests.answers import Message, UnfinishedAnswer
from core.requests.conversations import (
    ChatOptions,
    Conversation,
    ConversationId,
    ConversationInfo,
    KeptTurn,
    SavedSession,
)
from core.sampling_options import Sampling
from core.text import Clean
from tests.support.app import StillNode, text_of
from tests.support.screen_events import PLAN, done, token
from tui.app import MaclusterApp
from tui.state import branches, chats, conversation, export, sampling, state
from tui.state.saved_chats import SavedChat, preview_messages, saved_chats
from tui.state.state import UiState
from tui.state.turns import INTERRUPTED, Turn
from tui.widgets import markdown
from tui.widgets.conversation_list import head_content, preview_content, row_content
from tui.widgets.markdown_chunks import Chunk
from tui.widgets.message_view import foot_content
from tui.widgets.message_view import head_content as message_head
from tui.widgets.prompt import hint_words
from tui.widgets.status_line import title_content

ID = "1" * 32
READY = Snapshot(plan=PLAN, plan_status="ready")


def asked(*questions: str) -> UiState:
    """Each question answered with "one two"."""
    now = UiState(snapshot=READY, attached=True)
    for number, question in enumerate(questions):
        now = conversation.sent(conversation.begun(now, ID, 1.0), question, 1.0)
        now = conversation.accepted(now, "r1", 5, 1.0)
        for index, word in enumerate(("one ", "two")):
            now = state.fold(now, token(index, word), 2.0 + index)
        now = state.fold(now, done(tokens=2), 4.0 + number)
    return now


def texts(now: UiState) -> list[str]:
    return [turn.text for turn in now.turns]


def place(now: UiState, at: int) -> str:
    return branches.place_words(now.turns, now.others, now.turns[at].number)


@pytest.mark.parametrize(
    ("title", "question", "called"),
    [
        pytest.param("", "why?", "why?", id="first-question"),
        pytest.param("", "why\n  so?", "why so?", id="one-line"),
        pytest.param("mine", "why?", "mine", id="renamed"),
        pytest.param("", "x" * 80, "x" * 59 + "…", id="cut"),
        pytest.param("", "", chats.NO_TITLE, id="empty"),
    ],
)
def test_a_title_is_the_first_question_in_one_line(title: str, question: str, called: str) -> None:
    turns = (Turn(number=1, role="user", text=Clean(question), at=1.0),)
    assert chats.title_of(chats.Chat(title=Clean(title)), turns) == called


def test_what_is_kept_comes_back_and_foreign_text_is_clean() -> None:
    now = asked("why?")
    kept = chats.kept(now.chat, now.turns, 9.0)
    assert (kept.id, kept.model, kept.changed_at) == (ID, PLAN.model, 9.0)
    again = conversation.opened(UiState(), kept)
    assert texts(again) == ["why?", "one two"]
    assert again.turns[-1].rate == now.turns[-1].rate
    assert again.chat.id == ID
    assert conversation.messages(again) == conversation.messages(now)
    evil = msgspec.structs.replace(
        kept, title="a\x1b]52;c;x\x07b\nc", turns=(KeptTurn(role="user", text="\x1b[2Jhi\nho", at=1.0),)
    )
    opened = conversation.opened(UiState(), evil)
    assert opened.chat.title == "a]52;c;xb c"
    assert texts(opened) == ["[2Jhi\nho"]


def test_an_answer_under_way_is_kept_as_interrupted_and_can_be_continued() -> None:
    now = conversation.accepted(conversation.sent(conversation.begun(UiState(), ID, 1.0), "why?", 1.0), "r1", 5, 1.0)
    now = state.fold(now, token(0, "one "), 2.0)
    kept = chats.kept(now.chat, now.turns, 3.0)
    assert kept.turns[-1].why == INTERRUPTED
    more = UnfinishedAnswer(request_id="r1", model="m", messages=(), text="one two", tokens=2, max_tokens=9, at=2.0)
    opened = conversation.opened(UiState(unfinished=(more,)), kept)
    assert (opened.turns[-1].text, opened.turns[-1].tokens, opened.turns[-1].why) == ("one two", 2, INTERRUPTED)
    assert conversation.interrupted(opened) == more


def test_an_edit_cuts_and_what_was_there_stays_as_it_is_kept() -> None:
    now = asked("first", "second")
    cut = conversation.cut(msgspec.structs.replace(now, editing=now.turns[2].number), now.turns[2].number)
    assert texts(cut) == ["first", "one two"]
    after = conversation.stopped(conversation.sent(conversation.begun(cut, "2" * 32, 5.0), "better", 5.0))
    assert (after.chat.id, after.editing) == (ID, 0), "all is one conversation"
    assert [m.content for m in conversation.messages(after)] == ["first", "one two", "better"]
    kept = chats.kept(after.chat, after.turns, 9.0, after.others)
    again = conversation.opened(UiState(), kept)
    assert texts(again) == ["first", "one two", "better", ""]
    assert "\nsecond\n" not in export.markdown_of(kept), "what is written is the path that is shown"
    assert '"second"' not in export.json_of(kept)
    there = conversation.branched(again, again.turns[2].number, -1)
    assert texts(there) == ["first", "one two", "second", "one two"]
    assert conversation.messages(there) == conversation.messages(now)
    assert place(there, 2) == "1/2 ‹ ›"


def test_another_answer_stands_beside_the_one_before() -> None:
    now = asked("first", "second")
    again = conversation.retried(now, 5.0)
    assert texts(again) == ["first", "one two", "second", ""]
    assert place(again, 3) == "2/2 ‹ ›"
    assert conversation.request_of(again).messages == conversation.messages(now)[:-1]
    assert texts(conversation.branched(conversation.stopped(again), again.turns[3].number, -1)) == texts(now)


@pytest.mark.parametrize(
    ("sampled", "seed"),
    [
        pytest.param(Sampling(), None, id="greedy"),
        pytest.param(Sampling(seed=4), 4, id="greedy-with-a-seed"),
        pytest.param(Sampling(temperature=0.7), None, id="the-node-draws-one"),
        pytest.param(Sampling(temperature=0.7, seed=4), 5, id="another-seed"),
        pytest.param(Sampling(temperature=0.7, seed=(1 << 63) - 1), 0, id="the-last-seed"),
    ],
)
def test_asked_again_chance_decides_anew(sampled: Sampling, seed: int | None) -> None:
    now = conversation.asked_with(asked("why?"), ChatOptions(sampling=sampled))
    again = conversation.retried(now, 5.0)
    assert again.chat.options.sampling.seed == seed


def test_a_system_prompt_comes_first_and_a_new_chat_is_asked_the_same_way() -> None:
    options = ChatOptions(system="Be brief.", stop=("x",))
    now = conversation.asked_with(asked("why?"), options)
    assert [m.role for m in conversation.messages(now)] == ["system", "user", "assistant"]
    unkept = conversation.unkept(now, True)
    new = conversation.cleared(unkept)
    assert (new.turns, new.chat) == ((), chats.Chat(options=options))
    assert title_content(unkept, 80).plain.startswith(
        f" Chat · {PLAN.model} · 2 Macs · stop 1 · system prompt · not saved"
    )
    assert len(title_content(unkept, 60).plain) == 60


FORM = sampling.texts_of(ChatOptions())


@pytest.mark.parametrize(
    ("name", "typed", "wrong"),
    [
        pytest.param("temperature", "6", "at most 5", id="too-hot"),
        pytest.param("temperature", "-1", "at least 0", id="negative"),
        pytest.param("temperature", "warm", "not a number", id="word"),
        pytest.param("temperature", "nan", "not a number", id="nan"),
        pytest.param("top_p", "1.1", "at most 1", id="share"),
        pytest.param("top_k", "1.5", "not a whole number", id="not-whole"),
        pytest.param("repetition_penalty", "0", "more than 0", id="penalty"),
        pytest.param("max_tokens", "0", "at least 1", id="no-tokens"),
        pytest.param("constraint", "yes|no", "Start with schema, regex or grammar", id="no-shape"),
        pytest.param("constraint", "schema", "Start with schema, regex or grammar", id="no-schema"),
        pytest.param("constraint", "schema /none.json", "The file /none.json doesn't exist", id="no-file"),
        pytest.param("constraint", 'schema {"type":', "The file", id="half-a-schema"),
        pytest.param("seed", str(1 << 63), "at most 9223372036854775807", id="seed"),
        pytest.param("stop", "|".join("abcdefghijklmnopq"), "at most 16", id="stops"),
    ],
)
def test_the_form_says_at_its_line_what_is_wrong(name: str, typed: str, wrong: str) -> None:
    options, found = sampling.options_of(FORM | {name: typed}, ChatOptions())
    assert list(found) == [name]
    assert wrong in found[name]
    assert options == ChatOptions()


def test_what_is_typed_is_what_is_asked_and_shown_again() -> None:
    typed = FORM | {"temperature": "0.7", "seed": " 4 ", "stop": "END|a\\nb", "system": "Be brief.", "max_tokens": ""}
    options, wrong = sampling.options_of(typed, ChatOptions(max_tokens=9))
    assert not wrong
    assert options == ChatOptions(sampling=Sampling(temperature=0.7, seed=4), stop=("END", "a\nb"), system="Be brief.")
    assert sampling.texts_of(options) | {"max_tokens": ""} == typed | {"seed": "4"}
    assert chats.option_words(options) == ["temp 0.7", "seed 4", "stop 2", "system prompt"]
    untouched = ChatOptions(sampling=Sampling(presence_penalty=1.0))
    assert sampling.options_of(sampling.texts_of(untouched), untouched) == (untouched, {})


def test_a_shape_is_typed_as_its_file_or_itself_and_kept_as_it_was_read(tmp_path: Path) -> None:
    schema, grammar = tmp_path / "a b.json", tmp_path / "grammar.lark"
    schema.write_text('{"type":\n "null"}')
    grammar.write_text('start: "a" b\nb: "c"')
    for typed, shape, word in (
        (f"schema {schema}", Constraint(kind="json_schema", source='{"type":\n "null"}'), "schema"),
        ('schema {"type": "null"}', Constraint(kind="json_schema", source='{"type": "null"}'), "schema"),
        (" regex a | b ", Constraint(kind="regex", source="a | b"), "regex"),
        (f"grammar {grammar}", Constraint(kind="lark", source='start: "a" b\nb: "c"'), "grammar"),
    ):
        options, wrong = sampling.options_of(FORM | {"constraint": typed}, ChatOptions())
        assert (options, wrong) == (ChatOptions(constraint=shape), {})
        assert chats.option_words(options) == [word]
        assert sampling.options_of(sampling.texts_of(options), options) == (options, {})
        assert sampling.options_of(FORM, options) == (ChatOptions(), {})


@pytest.mark.parametrize(("valid", "mark"), [(True, "✓ valid · 2 tok"), (False, "✗ cut off, not valid · 2 tok")])
def test_the_foot_says_whether_an_answer_has_its_shape(valid: bool, mark: str) -> None:
    now = conversation.accepted(conversation.sent(asked(), "one", 1.0), "r1", 5, 1.0)
    now = state.fold(now, msgspec.structs.replace(done(tokens=2), is_valid=valid), 3.0)
    assert foot_content(now.turns[-1], 4.0).plain.startswith(mark)
    assert foot_content(now.turns[-1], 4.0, zoomed=True).plain == mark.partition(" · ")[0]
    kept = chats.kept(now.chat, now.turns, 9.0)
    assert chats.reopened(kept, 1)[1][-1].is_valid is valid


def test_presets_are_within_the_limits() -> None:
    for preset in chats.PRESETS.values():
        assert sampling.options_of(sampling.texts_of(ChatOptions(sampling=preset)), ChatOptions())[1] == {}


def test_the_markdown_file_has_everything() -> None:
    now = conversation.asked_with(asked("why?"), ChatOptions(system="Be\nbrief.", sampling=Sampling(temperature=0.7)))
    text = export.markdown_of(chats.kept(now.chat, now.turns, 9.0))
    for part in ("# why?", f"Model: {PLAN.model}", "temp 0.7", "> Be\n> brief.", "## You", "one two", "*2 tokens"):
        assert part in text
    assert export.default_path("Why: a/b ü?") == Path("~/macluster-Why-a-b-ü.md")
    assert export.default_path("///") == Path("~/macluster-chat.md")


def test_an_export_never_replaces_or_follows_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    assert export.write(path, "one")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not export.write(path, "two")
    assert path.read_text() == "one"
    path.chmod(0o644)
    assert export.write(path, "two", replace=True)
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("two", 0o600)
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(NodeError):
        export.write(tmp_path / "link", "three", replace=True)
    with pytest.raises(NodeError, match="No such file"):
        export.write(tmp_path / "no" / "a.md", "one")
    with pytest.raises(UsageError, match="folder"):
        export.path_from(str(tmp_path))


def info(name: str, **fields: object) -> ConversationInfo:
    base = ConversationInfo(id=name * 32, title=f"title {name}", model="tiny", changed_at=10.0, messages=2, tokens=1200)
    return msgspec.structs.replace(base, **fields)


def rows(*infos: ConversationInfo, sessions: tuple[SavedSession, ...] = (), wanted: str = "") -> tuple[SavedChat, ...]:
    return saved_chats(infos, sessions, wanted)


@pytest.mark.parametrize("width", [118, 76, 40, 24])
def test_rows_are_as_wide_as_the_list(width: int) -> None:
    infos = (info("1"), info("2", title="wide 日本語 " * 9), info("3", problem=NodeError("It was cut.").problem))
    for one in rows(*infos, sessions=(SavedSession(name="trip", model="tiny", tokens=9),)):
        assert row_content(one, "1" * 32, 70.0, width).cell_length == width
    assert head_content(width).cell_length == width
    assert row_content(rows(info("1"))[0], "1" * 32, 70.0, 60).plain.startswith("● title 1")


def test_a_damaged_one_says_why_and_sessions_stand_among_conversations() -> None:
    (damaged,) = rows(info("3", problem=NodeError("It was cut.", "Delete it.").problem))
    assert preview_content(damaged, (), "").plain == "It was cut.\nDelete it.\n\nx deletes it."
    trip, other = SavedSession(name="trip", created_at=20.0), SavedSession(name="other", created_at=5.0)
    mixed = rows(info("1"), sessions=(trip, other))
    assert [row.title for row in mixed] == ["trip", "title 1", "other"]
    assert [row.title for row in rows(info("1"), sessions=(trip, other), wanted="TRI")] == ["trip", "title 1"]
    said = msgspec.structs.replace(other, messages=(Message(role="user", content="Where is the Treasure?"),))
    assert [row.title for row in rows(sessions=(trip, said), wanted="treasure")] == ["other"]
    assert row_content(mixed[0], "", 70.0, 60).plain.startswith("◆ trip")


def test_two_of_one_title_say_when_they_began() -> None:
    same = [info(n, title="why?", created_at=60.0 * at) for at, n in enumerate("12")]
    first, second, third = (row.label for row in rows(*same, info("3")))
    assert first != second
    assert (first.endswith(":00 · why?"), second.endswith(":01 · why?"), third) == (True, True, "title 3")


def test_the_preview_shows_the_conversation_from_what_was_searched_on() -> None:
    turns = [KeptTurn(role="user" if n % 2 == 0 else "assistant", text=f"word {n}", at=1.0) for n in range(40)]
    turns.append(KeptTurn(role="assistant", text="Hidden Treasure\x1b[2J", at=1.0, back=2))
    kept = Conversation(id=ID, title="t", created_at=1.0, changed_at=1.0, turns=tuple(turns), newer=1)
    (row,) = rows(info("1"))
    whole = preview_content(row, preview_messages(kept, ""), "").plain
    assert whole.startswith("… 20 earlier messages\n\nyou\nword 20")
    assert whole.endswith("model\nword 39")
    assert preview_content(row, preview_messages(kept, "ORD 7"), "ORD 7").plain.startswith(
        "… 7 earlier messages\n\nmodel\nword 7"
    )
    hidden = preview_content(row, preview_messages(kept, "treasure"), "treasure")
    assert hidden.plain == "… 40 earlier messages\n\nmodel · in another version\nHidden Treasure[2J"
    assert any(str(span.style) == "reverse" for span in hidden.spans)


def test_zoomed_the_head_has_the_figures_and_the_foot_only_the_reason() -> None:
    turn = asked("why?").turns[-1]
    assert message_head(turn, None, zoomed=True).plain.endswith("2 tok · 1.0 tok/s")
    assert foot_content(turn, 9.0, zoomed=True).plain == ""
    stopped = msgspec.structs.replace(turn, why="stopped by you")
    assert foot_content(stopped, 9.0, zoomed=True).plain == "─── stopped by you ───"
    under_way = msgspec.structs.replace(turn, done=False)
    assert message_head(under_way, None, zoomed=True).plain.endswith("writing 1.0 tok/s")
    assert "reading 5 tokens" in message_head(msgspec.structs.replace(under_way, tokens=0), None, zoomed=True).plain
    assert "tok" not in message_head(turn, None).plain


@pytest.mark.parametrize("width", [60, 30, 20, 12])
def test_a_code_block_has_a_frame_that_fits(width: int) -> None:
    text = Clean("```python\ndef f():\n\treturn '日本語'\n```")
    lines = markdown.render(Chunk(text), width).plain.splitlines()
    assert {cell_len(line) for line in lines} == {width}
    assert (markdown.COPY_HINT in lines[0]) == (width >= 30)
    assert lines[0].startswith("┌ py")


def test_the_prompt_says_what_an_edit_does() -> None:
    assert "Esc: cancel" in hint_words(msgspec.structs.replace(asked("why?"), editing=1))


class Shelf(StillNode):
    """A node that keeps conversations, or fails to."""

    def __init__(self) -> None:
        super().__init__(READY)
        self.kept: list[Conversation] = []
        self.sent: list[Conversation] = []
        self.tries = 0
        self.problem: NodeError | None = None

    async def keep_conversation(self, conversation: Conversation) -> None:
        self.tries += 1
        if self.problem:
            raise self.problem
        self.sent.append(conversation)
        if keep := conversation.keep:
            if not (before := [one for one in self.kept if one.id == conversation.id])[-1:]:
                raise UsageError("It is not here.")
            if before[-1].changed_at != conversation.since:
                raise UsageError("It was changed elsewhere.")
            turns = (*before[-1].turns[:keep], *conversation.turns)
            conversation = msgspec.structs.replace(conversation, turns=turns, keep=0, since=0.0)
        self.kept.append(conversation)


async def until(pilot: Pilot[None], reached: Callable[[], bool]) -> None:
    for _ in range(500):
        if reached():
            return
        await pilot.pause(0.01)
    pytest.fail("It did not come to that.")


async def test_what_cannot_be_saved_is_told_once_and_saved_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui.control.conversation_archive.RETRY_S", 0.05)
    shelf = Shelf()
    shelf.problem = NodeError("The disk is full.", "Make room.")
    app = MaclusterApp(shelf)  # type: ignore[arg-type]
    async with app.run_test(size=(100, 30), notifications=True) as pilot:
        app.set_state(asked("why?"))
        await until(pilot, lambda: app.state.problem is not None)
        assert app.state.problem
        assert "isn't saved. The disk is full." in app.state.problem.what
        assert "retries every few seconds" in app.state.problem.fix
        app.set_state(state.failed(app.state, None))
        tried = shelf.tries
        await until(pilot, lambda: shelf.tries > tried + 1)
        assert app.state.problem is None, "told once"
        shelf.problem = None
        await until(pilot, lambda: len(shelf.kept) == 1)
        app.set_state(state.ticked(app.state, 9.0))
        await app.conversations.settle()
        assert len(shelf.kept) == 1, "nothing new, nothing saved"
        app.set_state(conversation.called(app.state, "mine"))
        await until(pilot, lambda: shelf.kept[-1].title == "mine")
        shelf.problem = NodeError("The disk is full.", "Make room.")
        app.set_state(conversation.called(app.state, "yours"))
        await until(pilot, lambda: app.state.problem is not None)
        shelf.problem = None
        await until(pilot, lambda: shelf.kept[-1].title == "yours" and app.state.problem is None)


async def test_only_new_messages_are_sent_unless_another_screen_changed_the_conversation() -> None:
    shelf = Shelf()
    app = MaclusterApp(shelf)  # type: ignore[arg-type]
    async with app.run_test(size=(100, 30)) as pilot:
        app.set_state(asked("why?"))
        await until(pilot, lambda: len(shelf.kept) == 1)
        app.set_state(conversation.stopped(conversation.sent(app.state, "and then?", 5.0)))
        await until(pilot, lambda: len(shelf.kept) == 2)
        assert (shelf.sent[-1].keep, len(shelf.sent[-1].turns)) == (2, 2)
        assert [turn.text for turn in shelf.kept[-1].turns] == ["why?", "one two", "and then?", ""]
        shelf.kept.append(msgspec.structs.replace(shelf.kept[-1], changed_at=1.0, turns=()))
        app.set_state(conversation.called(app.state, "mine"))
        await until(pilot, lambda: shelf.kept[-1].title == "mine")
        assert (shelf.sent[-1].keep, len(shelf.kept[-1].turns)) == (0, 4)
        again = conversation.opened(UiState(snapshot=READY, attached=True), shelf.kept[-1])
        app.conversations.knows(again, shelf.kept[-1].changed_at)
        app.set_state(conversation.stopped(conversation.sent(again, "so?", 6.0)))
        await until(pilot, lambda: len(shelf.kept[-1].turns) == 6)
        assert shelf.sent[-1].keep == 3, "the last message may have grown since it was saved"


async def test_an_answer_that_a_crash_cut_off_comes_back_with_its_conversation() -> None:
    class Crashed(Shelf):
        async def unfinished(self) -> list[UnfinishedAnswer]:
            said = (Message(role="user", content="why?"),)
            return [
                UnfinishedAnswer(
                    request_id="r1", model="m", messages=said, text="one t", tokens=2, max_tokens=9, at=2.0
                )
            ]

        async def conversations(self) -> list[ConversationInfo]:
            return [info("2", last_request="r0"), info("1", last_request="r1")]

        async def conversation(self, wanted: ConversationId) -> Conversation:
            assert wanted.id == ID
            before = (KeptTurn(role="user", text="so?", at=1.0), KeptTurn(role="assistant", text="so.", at=1.0))
            asked = KeptTurn(role="user", text="why?", at=1.0)
            cut_off = KeptTurn(role="assistant", text="", at=1.0, request_id="r1", why=INTERRUPTED)
            turns = (*before, asked, cut_off)
            return Conversation(id=ID, title="t", created_at=1.0, changed_at=1.0, turns=turns)

    shelf = Crashed()
    app = MaclusterApp(shelf)  # type: ignore[arg-type]
    async with app.run_test(size=(100, 30), notifications=True) as pilot:
        await until(pilot, lambda: len(app.state.turns) == 4)
        assert (app.state.chat.id, app.state.turns[-1].text) == (ID, "one t")
        assert conversation.interrupted(app.state) is not None
        assert shelf.kept == []


async def test_what_was_asked_comes_back_with_the_arrow_but_not_out_of_an_unkept_chat() -> None:
    app = MaclusterApp(Shelf())  # type: ignore[arg-type]
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.focused is app.dashboard.prompt)
        app.set_state(asked("first", "second"))
        await pilot.press("up", "up")
        assert app.dashboard.prompt.text == "first"
        app.dashboard.prompt.clear()
        app.set_state(conversation.unkept(app.state, True))
        app.set_state(conversation.cleared(app.state))
        await pilot.press("up")
        assert app.dashboard.prompt.text == ""


async def test_y_takes_one_block_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[str] = []

    async def copy(text: str, osc52: object, folder: Path) -> str:
        copied.append(text)
        return "Copied."

    monkeypatch.setattr("tui.control.clipboard.copy", copy)
    app = MaclusterApp(Shelf())  # type: ignore[arg-type]
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.focused is app.dashboard.prompt)
        two = Conversation(
            id=ID,
            title="t",
            created_at=1.0,
            changed_at=1.0,
            turns=(KeptTurn(role="assistant", text="```\na\n```\n\n```\nb\n```\n", at=1.0),),
        )
        app.set_state(conversation.opened(app.state, two))
        app.dashboard.chat.focus()
        await pilot.press("Y", "Y", "Y")
        await until(pilot, lambda: copied == ["b", "a", "b"])


class Library(Shelf):
    """A node that lists its conversations, the newest first."""

    async def delete_conversation(self, wanted: ConversationId) -> None:
        self.kept = [one for one in self.kept if one.id != wanted.id]

    async def conversations(self) -> list[ConversationInfo]:
        newest = {one.id: one for one in self.kept}
        found = [ConversationInfo(id=n, title=one.title, has_draft=bool(one.draft)) for n, one in newest.items()]
        return found[::-1]

    async def conversation(self, wanted: ConversationId) -> Conversation:
        return next(one for one in reversed(self.kept) if one.id == wanted.id)


@pytest.mark.slow
async def test_a_draft_survives_quitting_and_goes_when_it_is_asked_or_taken_along() -> None:
    library = Library()
    app = MaclusterApp(library)  # type: ignore[arg-type]
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.focused is app.dashboard.prompt)
        await pilot.press(*"half a")
        await app.action_quit()
        await until(pilot, lambda: not app.is_running)
    assert [(one.title, one.draft, one.turns) for one in library.kept] == [("half a", "half a", ())]
    app = MaclusterApp(library)  # type: ignore[arg-type]
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.prompt.text == "half a")
        assert app.state.chat.id == library.kept[0].id
        await pilot.press(*" question", "ctrl+n")
        await until(pilot, lambda: app.state.chat.id != library.kept[0].id if library.kept else True)
        await until(pilot, lambda: [one.draft for one in library.kept] == ["half a question"])
        assert app.prompt.text == "half a question", "it went along"


async def test_the_last_conversation_is_offered_and_one_key_away() -> None:
    library = Library()
    now = asked("why?")
    library.kept = [chats.kept(now.chat, now.turns, 9.0)]
    app = MaclusterApp(library)  # type: ignore[arg-type]
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "Ctrl+L continues the last conversation: why?" in text_of(app))
        await pilot.press("ctrl+l")
        await until(pilot, lambda: len(app.state.turns) == 2)
        assert app.state.chat.id == ID
