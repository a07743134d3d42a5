"""`macluster run` as a command, over a real socket: the request, the output, and Ctrl+C."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from core.constraint import Constraint
from core.errors import LinkTimeout, Parked, UsageError
from core.events import Recovery
from core.models.text.tokenizer import Tokens
from core.requests.answers import ChatRequest, Message
from core.sampling_options import Sampling
from core.settings import Home
from core.worker.messages import Token
from tests.support.answers import TEXT, AnswersHarness, ids_of, model, tokens
from tests.support.run_command import DEADLINE_S, RUN, harness, running, served
from tests.support.waiting import until
from tui.cli import answering
from tui.cli.answer_options import request_of
from tui.cli.answering import answer
from tui.cli.main import main, show_defect
from tui.cli.parser import parser
from tui.cli.remote_api import body_of
from tui.cli.watch import Watch

__all__ = ["harness", "model", "tokens"]  # fixtures


def request(*words: str) -> ChatRequest:
    args = parser().parse_args([*RUN, *words])
    return request_of(args.prompt, args)


def test_every_option_is_asked_for() -> None:
    hello = (Message(role="user", content="hello"),)
    assert request() == ChatRequest(messages=hello, max_tokens=200)
    words = """--max-tokens 9 --min-tokens 3 --stop END --stop 日 --ignore-chat-template --temperature 0.5 --top-p 0.9
        --min-p 0.05 --top-k 40 --repetition-penalty 1.1 --presence-penalty -2 --frequency-penalty 0.25
        --logit-bias 42=-5 --logit-bias 7=1e-1 --seed 9223372036854775807 --logprobs 0 --json"""
    assert request(*words.split()) == ChatRequest(
        messages=hello,
        max_tokens=9,
        min_tokens=3,
        stop=("END", "日"),
        raw=True,
        sampling=Sampling(
            temperature=0.5,
            top_p=0.9,
            min_p=0.05,
            top_k=40,
            repetition_penalty=1.1,
            presence_penalty=-2.0,
            frequency_penalty=0.25,
            logit_bias={42: -5.0, 7: 0.1},
            seed=(1 << 63) - 1,
            logprobs=0,
        ),
    )


def test_a_shape_is_asked_for(tmp_path: Path) -> None:
    schema, grammar = tmp_path / "schema.json", tmp_path / "grammar.lark"
    schema.write_text('{"type": "null"}')
    grammar.write_text('start: "a"')
    assert request("--schema", str(schema)).constraint == Constraint(kind="json_schema", source='{"type": "null"}')
    assert request("--regex", "a|b").constraint == Constraint(kind="regex", source="a|b")
    assert request("--grammar", str(grammar)).constraint == Constraint(kind="lark", source='start: "a"')
    body = body_of(request("--schema", str(schema)), "toy")["response_format"]
    assert body["json_schema"]["schema"] == {"type": "null"}
    for wrong in (grammar, tmp_path, tmp_path / "none"):
        with pytest.raises(UsageError, match=str(wrong)):
            request("--schema", str(wrong))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param("--regex a --schema b", "not allowed with argument", id="two_shapes"),
        pytest.param("--regex=", "Invalid request: source must be", id="empty_shape"),
        pytest.param(
            "--regex a --url http://127.0.0.1:1", "--regex works only with this Mac's node", id="remote_shape"
        ),
        pytest.param("--temperature warm", "'warm' is not a number", id="no_number"),
        pytest.param("--repetition-penalty nan", "'nan' is not a number", id="nan"),
        pytest.param("--presence-penalty=-inf", "'-inf' is not a number", id="no_bounds"),
        pytest.param("--temperature 5.5", "Invalid request: temperature must be", id="temperature"),
        pytest.param("--temperature=-1", "Invalid request: temperature must be", id="below_zero"),
        pytest.param("--top-p 1.5", "Invalid request: top p must be", id="top_p"),
        pytest.param("--min-p 2", "Invalid request: min p must be", id="min_p"),
        pytest.param("--top-k -1", "Invalid request: top k must be", id="top_k"),
        pytest.param("--repetition-penalty 0", "Invalid request: repetition penalty must be", id="repetition"),
        pytest.param("--presence-penalty 3", "Invalid request: presence penalty must be", id="presence"),
        pytest.param("--frequency-penalty -3", "Invalid request: frequency penalty must be", id="frequency"),
        pytest.param("--logit-bias 42", "'' is not a number", id="bias_without_value"),
        pytest.param("--logit-bias cat=1", "'cat=1' is not a token id and a number, such as 42=-5", id="bias_of_text"),
        pytest.param("--logit-bias 42=1000", "Invalid request: logit bias must be", id="bias_too_far"),
        pytest.param("--seed -1", "Invalid request: seed must be", id="seed"),
        pytest.param("--logprobs 21 --json", "Invalid request: logprobs must be", id="logprobs"),
        pytest.param("--logprobs 1", "Add --json.", id="logprobs_as_text"),
        pytest.param("--max-tokens 0", "Invalid request: max tokens must be", id="max_tokens"),
        pytest.param("--min-tokens -1", "Invalid request: min tokens must be", id="min_tokens"),
        pytest.param("--stop=", "Invalid request: stop must be", id="empty_stop"),
        pytest.param(" ".join(f"--stop {n}" for n in range(17)), "Invalid request: stop must be", id="many_stops"),
    ],
)
def test_bad_values_are_told_before_anything_is_asked_or_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str, said: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["macluster", "--home", str(tmp_path), *RUN, *words.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


async def test_the_answer_comes_as_text_without_what_stops_it(harness: AnswersHarness, tokens: Tokens) -> None:
    async with running(harness, "--stop", "and a") as process:
        (asked,) = harness.asked
        harness.writes(asked, ids_of(tokens, TEXT))
        out, err = await process.communicate()
    assert (process.returncode, err) == (0, b"")
    assert out.decode() == TEXT[: TEXT.index("and a")] + "\n\n"
    assert harness.cancelled == [asked.request_id]


async def test_json_tells_logprobs(harness: AnswersHarness) -> None:
    async with running(harness, "--json", "--logprobs", "2") as process:
        (asked,) = harness.asked
        for index, token in enumerate((80, 81)):
            top = ((80, -0.25), (81, -1.5))
            harness.says(Token(request_id=asked.request_id, index=index, token=token, logprob=top[index][1], top=top))
        harness.ends(asked)
        out, _ = await process.communicate()
    facts = json.loads(out)
    told: list[dict[str, Any]] = [{"token": 80, "logprob": -0.25}, {"token": 81, "logprob": -1.5}]
    assert facts["logprobs"] == [one | {"top": told} for one in told]
    assert (process.returncode, facts["tokens"], facts["finish_reason"]) == (0, [80, 81], "length")


@pytest.mark.parametrize("as_json", [pytest.param(False, id="text"), pytest.param(True, id="json")])
async def test_ctrl_c_cancels_this_answer_and_prints_what_there_is(
    harness: AnswersHarness,
    tokens: Tokens,
    as_json: bool,
) -> None:
    other = await harness.ask("another")
    ids = ids_of(tokens, "Three small machines END")
    async with running(harness, "--stop", "END of", *(["--json"] if as_json else [])) as process:
        _, asked = harness.asked
        harness.writes(other, ids)
        harness.writes(asked, ids)
        process.send_signal(signal.SIGINT)
        out, err = await process.communicate()
    assert (process.returncode, err) == (130, b"")
    assert harness.cancelled == [asked.request_id]
    assert harness.bus.now.running == (other.request_id,)
    if as_json:
        facts = json.loads(out)
        assert (facts["text"], facts["tokens"]) == ("Three small machines END", ids)
        assert facts["finish_reason"] == "cancelled"
    else:
        assert out.decode() == "Three small machines END\n\n", "what was held back for a stop text is shown, too"


async def test_ctrl_c_before_the_node_has_answered_leaves_nothing_that_runs(harness: AnswersHarness) -> None:
    busy = harness.answers.archive.old_logs
    await busy.acquire()
    async with running(harness, until=lambda: busy._waiters) as process:
        process.send_signal(signal.SIGINT)
        busy.release()
        out, err = await process.communicate()
    assert (process.returncode, out, err) == (130, b"\n\n", b"")
    assert harness.cancelled == [asked.request_id for asked in harness.asked]
    assert not harness.bus.now.running


async def test_a_client_that_dies_before_it_reads_the_reply_leaves_nothing_that_runs(harness: AnswersHarness) -> None:
    busy = harness.answers.archive.old_logs
    await busy.acquire()
    async with running(harness, until=lambda: busy._waiters) as process:
        process.kill()
        await process.wait()
        assert harness.bus.now.running
        busy.release()
        await until(lambda: not harness.bus.now.running)
    assert harness.cancelled == [asked.request_id for asked in harness.asked]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        pytest.param(UsageError("Top-k 600 is too many.", "Ask for less."), 2, id="wrong_use"),
        pytest.param(Parked("mini is gone."), 1, id="failure"),
    ],
)
async def test_what_ends_an_answer_is_told_with_the_cure(
    harness: AnswersHarness, error: UsageError | Parked, status: int
) -> None:
    async with running(harness, "--json") as process:
        harness.ends(harness.asked[0], "error", error.problem)
        out, err = await process.communicate()
    assert (process.returncode, err.decode()) == (status, f"macluster: {error}\n")
    assert json.loads(out)["problem"]["what"] == error.what


GONE = Recovery(state="hold", text="mini is gone.", fix="Wake it up.", since=5.0)
BACK = Recovery(state="running", text="recovered: mini left, now studio + mbp, 17 s")


def recovers(harness: AnswersHarness, request_id: str) -> None:
    for told in (GONE, GONE, Recovery(state="replan", text="Of another.", requests=("ab" * 16,))):
        harness.bus.publish(told)
    harness.bus.publish(replace(BACK, requests=(request_id,)))


async def test_what_happens_to_the_plan_is_told_beside_the_answer(harness: AnswersHarness, tokens: Tokens) -> None:
    async with running(harness) as process:
        (asked,) = harness.asked
        ids = ids_of(tokens, TEXT)
        harness.writes(asked, ids[:5])
        recovers(harness, asked.request_id)
        harness.writes(asked, ids[5:])
        harness.ends(asked)
        out, err = await process.communicate()
    assert (process.returncode, out.decode()) == (0, TEXT + "\n\n")
    assert err.decode() == f"mini is gone. Wake it up.\n{BACK.text}\n"


async def test_json_tells_what_happened_to_the_plan(harness: AnswersHarness) -> None:
    async with running(harness, "--json") as process:
        (asked,) = harness.asked
        recovers(harness, asked.request_id)
        harness.ends(asked)
        out, err = await process.communicate()
    told = json.loads(out)["recoveries"]
    assert [(one["state"], one["text"], one["fix"]) for one in told] == [
        ("hold", GONE.text, GONE.fix),
        ("running", BACK.text, ""),
    ]
    assert err == b""


@pytest.mark.parametrize(
    ("no_color", "line"),
    [pytest.param("", f"\x1b[2m{BACK.text}\x1b[0m", id="dim"), pytest.param("1", BACK.text, id="no_color")],
)
async def test_on_a_terminal_it_is_dim(
    harness: AnswersHarness, monkeypatch: pytest.MonkeyPatch, no_color: str, line: str
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    screen, terminal = os.openpty()
    try:
        async with running(harness, stderr=terminal) as process:
            harness.bus.publish(BACK)
            harness.ends(harness.asked[0])
            out, _ = await process.communicate()
        assert os.read(screen, 4096).decode() == line + "\r\n"
        assert out == b"\n\n"
    finally:
        os.close(screen)
        os.close(terminal)


@pytest.mark.slow
async def test_an_answer_that_waits_for_a_mac_has_time(
    harness: AnswersHarness,
    tokens: Tokens,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(answering, "ANSWER_S", 0.4)
    async with Watch(Home(harness.folder)) as watch:
        await watch.attached(DEADLINE_S)
        with pytest.raises(LinkTimeout, match="The answer took longer"):
            await answer(watch, request("--ignore-chat-template"), as_json=False, hops=False)
        asking = asyncio.create_task(answer(watch, request("--ignore-chat-template"), as_json=False, hops=False))
        harness.bus.publish(Recovery(state="wait", text="It waits for mini."))
        done, _ = await asyncio.wait([asking], timeout=1.0)
        assert not done
        harness.bus.publish(BACK)
        harness.writes(harness.asked[-1], ids_of(tokens, TEXT))
        harness.ends(harness.asked[-1])
        await asyncio.wait_for(asking, DEADLINE_S)
    assert TEXT in capsys.readouterr().out


async def test_ctrl_c_ends_an_answer_that_waits(harness: AnswersHarness) -> None:
    async with running(harness) as process:
        harness.answers.suspend()
        harness.bus.publish(Recovery(state="wait", text="It waits for mini."))
        assert process.stderr
        assert await process.stderr.readline() == b"It waits for mini.\n"
        process.send_signal(signal.SIGINT)
        out, err = await process.communicate()
    assert (process.returncode, out, err) == (130, b"\n\n", b"")
    assert not harness.bus.now.running


@pytest.mark.slow
@pytest.mark.parametrize("as_json", [pytest.param(False, id="text"), pytest.param(True, id="json")])
async def test_continue_prints_what_was_there_and_goes_on(
    harness: AnswersHarness,
    tokens: Tokens,
    as_json: bool,
) -> None:
    ids = ids_of(tokens, TEXT)
    first, second = await harness.ask(), await harness.ask()
    harness.writes(first, ids[:9])
    harness.writes(second, [65])
    async with served(harness.crashes()) as again:
        words = [first.request_id[:8], *(["--json"] if as_json else [])]
        async with running(again, *words, run=["run", "toy", "--continue"]) as process:
            (asked,) = again.asked
            assert asked.written == ids[:9]
            again.writes(first, ids[9:])
            again.ends(first)
            out, err = await process.communicate()
        assert (process.returncode, err) == (0, b"")
        if as_json:
            facts = json.loads(out)
            assert (facts["text"], facts["tokens"]) == (TEXT, ids[9:])
        else:
            assert out.decode() == TEXT + "\n\n"
        status = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tui.cli.main", "--home", str(harness.folder), "run", "toy", "--continue", "zz"),
            stderr=PIPE,
        )
        _, err = await status.communicate()
        assert (status.returncode, "starts with 'zz'" in err.decode()) == (2, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(["--json"], "A conversation needs the chat template", id="conversation"),
        pytest.param(["--continue", "--url", "http://x"], "works only with this Mac's node", id="elsewhere"),
        pytest.param(["--continue", "--keep-nothing"], "keeps its settings", id="keep nothing"),
        pytest.param(["-p", "x", "--continue"], "not allowed with", id="both"),
        pytest.param(["--continue", "--session", "trip"], "keeps its settings", id="session"),
        pytest.param(["--continue", "--max-tokens", "9"], "keeps its settings", id="options"),
        pytest.param(["--continue", "ab", "--temperature", "0.5"], "keeps its settings", id="sampling"),
    ],
)
def test_continue_takes_no_other_options(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: Sequence[str],
    said: str,
) -> None:
    monkeypatch.setattr(sys, "argv", ["macluster", "--home", str(tmp_path), "run", "toy", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


async def test_a_word_that_comes_as_nobody_waits_any_more_is_no_defect(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.get_running_loop()
    nobody = loop.create_future()
    nobody.cancel()
    loop.set_exception_handler(show_defect)
    loop.call_soon(nobody.set_result, None)
    loop.call_soon(dict[str, str]().__getitem__, "a defect")
    await asyncio.sleep(0.01)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "KeyError" in caplog.text
