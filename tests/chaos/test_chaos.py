"""The short round, at points drawn from CHAOS_SEED; and a check that a fault would be seen."""

from __future__ import annotations

import os

import pytest

from core.errors import NoAnswer
from core.events import AnyEvent, LogLine, PlanFailed, Progress, RequestDone, RequestStarted, TokenEvent
from tests.chaos.cluster import Heard
from tests.chaos.round import Wanted, run_round
from tests.chaos.trial import Answer, Ask, Times, differences, read_again, times_of

END = RequestDone(request_id="r", finish_reason="length", prompt_tokens=1, tokens=3)
WHOLE = Answer(((0, 7), (1, 8), (2, 9)), "abc", (END,))
PROBLEM = NoAnswer("mini does not answer.").problem
BROKEN = RequestDone(request_id="r", finish_reason="error", prompt_tokens=1, tokens=3, problem=PROBLEM)


@pytest.mark.nightly
@pytest.mark.promise("P16")
async def test_no_fault_changes_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    seed = int(os.environ.get("CHAOS_SEED", "1"))
    with capsys.disabled():
        told = await run_round(Wanted("short", seed=seed), lambda text: print(text, flush=True))
    failed = [f"{one.line}\n{one.command}\n{one.evidence}" for one in told.failed]
    assert not failed, "\n\n".join(failed)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        pytest.param(WHOLE._replace(tokens=((0, 7), (1, 8), (1, 8), (2, 9))), "shown twice", id="twice"),
        pytest.param(WHOLE._replace(tokens=((0, 7), (2, 9))), "left out", id="left-out"),
        pytest.param(WHOLE._replace(tokens=((0, 7), (1, 5), (2, 9))), "Token 1", id="another"),
        pytest.param(WHOLE._replace(tokens=WHOLE.tokens[:2]), "2 of 3", id="too-few"),
        pytest.param(WHOLE._replace(text="abd"), "another text", id="text"),
        pytest.param(WHOLE._replace(ends=(END, END)), "ended 2 times", id="two-ends"),
        pytest.param(WHOLE._replace(ends=(BROKEN,)), "does not answer", id="problem"),
    ],
)
def test_what_is_wrong_with_an_answer_is_seen(answer: Answer, said: str) -> None:
    ask = Ask("?", 3)
    assert differences(WHOLE, WHOLE, ask) == []
    assert any(said in wrong for wrong in differences(answer, WHOLE, ask))


def test_the_time_of_a_recovery_is_that_of_the_token_behind_the_gap() -> None:
    def token(at: float, index: int) -> Heard:
        return Heard(at, TokenEvent(request_id="r", index=index, token=index, text=""))

    lost = Heard(10.5, PlanFailed(plan_gen=1, problem=PROBLEM))
    heard = [token(9.0, 0), lost, token(10.625, 1), token(14.0, 2), token(14.125, 3)]
    assert times_of(heard, 10.0, ["r"]) == Times(0.5, 4.0, 3.375)
    assert times_of([heard[0], *heard[2:]], 10.0, ["r"]) == Times(None, None, 3.375)


def test_what_came_back_from_a_mirror_was_not_read_again() -> None:
    def log(text: str) -> LogLine:
        return LogLine(at=0.0, level="INFO", source="node", text=text)

    def read(request: str, done: int) -> Progress:
        return Progress(task="prefill", request_id=request, done=done, total=90, unit="tokens")

    events: list[AnyEvent] = [
        RequestStarted(request_id="r", prompt_tokens=50),
        RequestStarted(request_id="s", prompt_tokens=90),
        read("s", 64),
        TokenEvent(request_id="r", index=20, token=1, text=""),
        PlanFailed(plan_gen=1, problem=PROBLEM),
        log("64 tokens came back from the mirror, and 7 are read again."),
        read("s", 32),
        read("r", 64),
        read("s", 64),
    ]
    heard = [Heard(0.0, event) for event in events]
    assert read_again(heard, ["r"]) == 70 - 64
    assert read_again(heard, ["r", "s"]) == 64
    assert read_again(heard[:4], ["r", "s"]) is None
    ended = RequestDone(request_id="s", finish_reason="length", prompt_tokens=1, tokens=64)
    assert read_again([Heard(0.0, ended), *heard], ["r", "s"]) == 70 - 64
