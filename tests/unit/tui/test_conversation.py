"""A conversation of `macluster run`: the messages sent each time, the commands, and the history."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from core.errors import MaclusterError, NodeError, UsageError
from core.requests.answers import ChatRequest, Message
from core.requests.conversations import ChatOptions
from core.sampling_options import Sampling
from tui.cli.remote_api import body_of
from tui.cli.run import Conversation
from tui.cli.typed_lines import Keyboard


class Typed:
    """Lines of input, then its end. A `stopped` answer gets one word."""

    def __init__(self, *lines: str, is_person: bool = True, stopped: str = "") -> None:
        self.is_person, self._lines, self._stopped = is_person, list(lines), stopped
        self.now = ""

    def read(self) -> str | None:
        self.now = self._lines.pop(0) if self._lines else ""
        return self.now or None

    async def attend(self, work: Coroutine[Any, Any, object]) -> bool:
        await work
        return self.now != self._stopped


class Echo:
    """Answers with the question; "fail" fails, and "silent" gets no word."""

    def __init__(self) -> None:
        self.asked: list[ChatRequest] = []

    async def answer(self, asked: ChatRequest, hear: Callable[[str], None]) -> str:
        self.asked.append(asked)
        question = asked.messages[-1].content
        if question == "fail":
            raise NodeError("It failed.")
        if question != "silent":
            hear("so: ")
            hear(question)
        return "length" if question == "long" else "stop"

    @property
    def read(self) -> list[list[str]]:
        return [[said.content for said in asked.messages] for asked in self.asked]


async def talk(*lines: str, options: ChatOptions | None = None, **more: Any) -> Echo:
    echo = Echo()
    await Conversation("toy", options or ChatOptions()).run(Typed(*lines, **more), echo)
    return echo


async def test_each_turn_reads_what_was_said_before_and_what_had_no_answer_is_left_out() -> None:
    echo = await talk("one", " /two\nlines", "fail", "silent", "three", stopped="one")
    assert echo.read[1] == ["one", "so: one", " /two\nlines"]
    assert echo.read[-1] == ["one", "so: one", " /two\nlines", "so:  /two\nlines", "three"]


async def test_a_conversation_goes_on_behind_what_was_said_and_unkept_ones_are_not() -> None:
    echo = Echo()
    said = (
        Message(role="system", content="rhyme"),
        Message(role="user", content="a"),
        Message(role="assistant", content="b"),
    )
    await Conversation("toy", ChatOptions(), said, is_unkept=True).run(Typed("c"), echo)
    assert [(m.role, m.content) for m in echo.asked[0].messages] == [
        *((one.role, one.content) for one in said),
        ("user", "c"),
    ]
    assert not echo.asked[0].keep


async def test_options_are_set_by_their_names_and_wrong_ones_change_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    begun = ChatOptions(max_tokens=7, sampling=Sampling(presence_penalty=1.0))
    lines = (
        "/set top-p 0.9",
        "/set logit_bias 4=-5,5=1",
        "/set stop END|日",
        "/set system Be brief.",
        "/set max_tokens",
    )
    wrong = ("/set temperature 9", "/set top_k x", "/set nonesuch 1", "/nonesuch", "/set seed 3")
    echo = await talk(*lines, "/set max_tokens", *wrong, "long", "/quit", "never", options=begun)
    sampling = Sampling(top_p=0.9, logit_bias={4: -5.0, 5: 1.0}, presence_penalty=1.0, seed=3)
    (asked,) = echo.asked
    assert (asked.sampling, asked.stop, asked.max_tokens) == (sampling, ("END", "日"), ChatOptions().max_tokens)
    assert asked.messages[0] == Message(role="system", content="Be brief.")
    told = capsys.readouterr()
    assert told.out.startswith("top_p  0.9")
    for words in ("temperature: at most 5.", "top_k: not a whole number.", "Unknown option nonesuch"):
        assert words in told.err
    assert "There is no command /nonesuch." in told.err
    assert "token limit" in told.err


async def test_a_person_goes_on_after_a_failure_and_a_pipe_ends_with_it() -> None:
    assert len((await talk("fail", "more")).asked) == 2
    with pytest.raises(NodeError):
        await talk("fail", "more", is_person=False)
    with pytest.raises(UsageError):
        await talk("/nonesuch", is_person=False)


async def test_it_is_saved_as_words_or_json_and_never_over_another_file(tmp_path: Path) -> None:
    conversation, words, facts = Conversation("toy", ChatOptions()), tmp_path / "a b.md", tmp_path / "a.json"
    await conversation.run(Typed("one", f"/save {words}", f"/save {facts}"), Echo())
    assert "so: one" in words.read_text()
    assert [turn["text"] for turn in msgspec.json.decode(facts.read_bytes())["turns"]] == ["one", "so: one"]
    for typed in (f"/save {words}", "/save", f"/save {tmp_path}"):
        with pytest.raises(MaclusterError):
            conversation.command(typed)


@pytest.mark.promise("P32")
def test_lines_are_remembered_for_this_user_alone_the_newest_as_far_as_there_is_room(tmp_path: Path) -> None:
    readline = pytest.importorskip("readline")
    history = tmp_path / "typed"
    readline.clear_history()
    with Keyboard(history):
        for line in ("x" * 60_000, "two\nlines", "y" * 10_000):
            readline.add_history(line)
    assert history.stat().st_mode & 0o777 == 0o600
    readline.clear_history()
    Keyboard(history)
    count = readline.get_current_history_length()
    assert [readline.get_history_item(n + 1) for n in range(count)] == ["two\nlines", "y" * 10_000]
    with Keyboard(None):
        readline.add_history("private")
    assert b"private" not in history.read_bytes()
    history.write_bytes(b"{")
    with pytest.raises(NodeError):
        Keyboard(history)


def test_another_macs_api_is_asked_for_the_same() -> None:
    sampling = Sampling(temperature=0.5, top_k=3, logit_bias={4: -5.0}, seed=0, repetition_context=7)
    asked = ChatRequest(messages=(Message(role="user", content="hi"),), sampling=sampling, stop=("END",), max_tokens=9)
    assert body_of(asked, "toy") == {
        "model": "toy",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 9,
        "temperature": 0.5,
        "top_k": 3,
        "logit_bias": {4: -5.0},
        "seed": 0,
        "stop": ["END"],
        "stream": True,
    }
