"""Predicted speed of plans before loading, against the speed measured after.

Four Macs are simulated on this one, over real links. They first answer over all four, since predictions are made from
past answers. Then each case is predicted, loaded and measured, one by one, and all again in each round: measurements of
one round count for the next, and a machine that slows down shows in both figures. No two prompts share a prefix.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import msgspec

from core.bench.results import cores, end_in_order, positive, system
from core.errors import error_from
from core.events import RequestDone
from core.plan.forecast import CLEARLY_FASTER, PROMPT_TOKENS
from core.requests.answers import ChatRequest, Message
from core.requests.plans import Forecast, LoadRequest, PreviewRequest
from tests.benches.figures import reach
from tests.benches.results import Result, print_result
from tui.cli.demo import Demo, DemoConfig
from tui.cli.load import loaded
from tui.cli.made_model import made_llama
from tui.cli.output import print_progress
from tui.cli.watch import Watch

BUDGETS_GB: Final = (1.0, 1.0, 1.0, 1.0)
WITHIN: Final = 1.15
NEAR: Final = 1.1  # around the border, neither verdict counts
DTYPES: Final = ("float32", "bfloat16")
ANSWER_S: Final = 600.0
ANSWERS: Final = 3  # per load; the first of new workers includes one-time work that no forecast covers
_FIRST, _STEP, _WORDS = 101, 7, 1900


class Case(NamedTuple):
    """A way to share the model over `macs` Macs, the head included."""

    name: str
    macs: int
    how: dict[str, Any]


CASES: Final = (
    Case("1 Mac", 1, {}),
    Case("2 stages", 2, {}),
    Case("3 stages", 3, {}),
    Case("4 stages", 4, {}),
    Case("2 stages, forward", 2, {"topology": "forward"}),
    Case("3 stages, forward", 3, {"topology": "forward"}),
    Case("2 stages, reverse", 2, {"topology": "reverse"}),
    Case("4 stages, reverse", 4, {"topology": "reverse"}),
    Case("2 stages, 8 bits between", 2, {"wire": "int8"}),
    Case("2 stages, 8 rows", 2, {"rows": 8}),
    Case("2 ranks", 2, {"parallelism": "tp"}),
)


class ForecastRun(msgspec.Struct, frozen=True, kw_only=True):
    """A case once. None if there was no forecast. `first_s`: from the request to its first token."""

    foretold_tokens_per_s: float | None
    tokens_per_s: float
    foretold_first_s: float | None
    first_s: float
    advised_alone: bool


class ForecastCase(msgspec.Struct, frozen=True, kw_only=True):
    """Medians over rounds. `decode`, `first`: predicted over measured seconds, of a token and to the first token.
    `advice_is_right`: one Mac was advised exactly if it was clearly faster; None if the measurement is too close to
    that border.
    """

    tokens_per_s: float
    first_s: float
    decode: float | None
    first: float | None
    advice_is_right: bool | None


class ForecastResult(Result, frozen=True, kw_only=True):
    """Figures by the names of `CASES`. `within`: number of cases whose forecast was within 15 %."""

    model: str
    tokens: int
    within: dict[str, int]
    cases: dict[str, ForecastCase]
    rounds: list[dict[str, ForecastRun]]


class Forecasts:
    """Predicts, loads and measures cases with the watched head."""

    def __init__(self, watch: Watch, model: str, tokens: int) -> None:
        self._watch, self._model, self._tokens = watch, model, tokens
        self._asked = 0

    async def play(self, case: Case) -> ForecastRun:
        """A case once. Raises MaclusterError."""
        how = self._how(case)
        told = (await self._watch.client.plan(PreviewRequest(**how))).forecast
        await loaded(self._watch, LoadRequest(**how))
        answers = [await self._ask() for _ in range(ANSWERS)]
        run = ForecastRun(
            foretold_tokens_per_s=told.tokens_per_s if told else None,
            tokens_per_s=median(done.decode_tokens_per_s or 0.0 for done in answers),
            foretold_first_s=_first_s(told),
            first_s=median(done.ttft_s or 0.0 for done in answers),
            advised_alone=bool(told and told.advice),
        )
        print_progress(
            f"{case.name}: {run.tokens_per_s:.1f} tokens/s ({_words(run.foretold_tokens_per_s)}), the first one after "
            f"{run.first_s:.1f} s ({_words(run.foretold_first_s)})"
        )
        return run

    def _how(self, case: Case) -> dict[str, Any]:
        others = [peer.device_id for peer in self._watch.now.peers if not peer.is_self]
        without = tuple(others[case.macs - 1 :])
        return {"model": self._model, "without": without, "context": 2048, **case.how}

    async def _ask(self) -> RequestDone:
        """Ask with `PROMPT_TOKENS` tokens; returns the measured times, once they are learned."""
        self._asked += 1
        prompt = tuple(_FIRST + (13 * self._asked + _STEP * at) % _WORDS for at in range(PROMPT_TOKENS))
        wanted = ChatRequest(
            messages=(Message(role="user", content="-"),),
            prompt_tokens=prompt,
            min_tokens=self._tokens,
            max_tokens=self._tokens,
            keep=False,
        )
        request = (await self._watch.client.chat(wanted)).request_id

        def ended() -> RequestDone | None:
            return next((e for e in seen if isinstance(e, RequestDone) and e.request_id == request), None)

        seen = self._watch.seen
        await self._watch.until(lambda _: ended() is not None, ANSWER_S, "An answer")
        done = ended()
        assert done
        if done.problem:
            raise error_from(done.problem)
        return done


def _first_s(told: Forecast | None) -> float | None:
    """Predicted time to the first token: the prefill and one decode step."""
    return told.prompt_s + told.token_s if told and told.prompt_s is not None else None


def _words(predicted: float | None) -> str:
    return "no forecast" if predicted is None else f"predicted {predicted:.1f}"


async def measure(args: argparse.Namespace) -> ForecastResult:
    """`args.rounds` times every case. Raises MaclusterError."""
    with TemporaryDirectory(prefix="macluster-forecast-") as folder:
        model = made_llama(Path(folder) / "made", args.layers, args.hidden, args.dtype)
        demo = Demo(DemoConfig(budgets_gb=BUDGETS_GB, model=model, multicast=False, has_spare=False), lambda _: None)
        try:
            await demo.start()
            await demo.join()
            forecasts = Forecasts(demo.head, demo.model, args.tokens)
            for case in (CASES[3], CASES[1]):
                await forecasts.play(case)
            rounds = []
            for number in range(args.rounds):
                order = CASES[number % len(CASES) :] + CASES[: number % len(CASES)]
                played = {case.name: await forecasts.play(case) for case in order}
                rounds.append({case.name: played[case.name] for case in CASES})
        finally:
            await demo.stop()
    return summary(rounds, f"a {args.dtype} model of {args.layers} layers, {args.hidden} wide", args.tokens)


def summary(rounds: Sequence[dict[str, ForecastRun]], model: str, tokens: int) -> ForecastResult:
    """Medians over rounds; a ratio is the median of the ratios within a round."""
    cases = {
        case.name: _case([each[case.name] for each in rounds], [each[CASES[0].name] for each in rounds], case)
        for case in CASES
    }
    right = [case.advice_is_right for case in cases.values() if case.advice_is_right is not None]
    within = {
        "decode": sum(_is_within(case.decode) for case in cases.values()),
        "first": sum(_is_within(case.first) for case in cases.values()),
    }
    ratios = {
        "decode_within": within["decode"] / len(cases),
        "first_within": within["first"] / len(cases),
        "advice_right": sum(right) / len(right) if right else 1.0,
    }
    return ForecastResult(
        ratios=ratios,
        reach={name: reach(ratio, at_least=1.0) for name, ratio in ratios.items()},
        cores=cores(),
        system=system(),
        model=model,
        tokens=tokens,
        within=within,
        cases=cases,
        rounds=list(rounds),
    )


def _case(runs: Sequence[ForecastRun], alone: Sequence[ForecastRun], case: Case) -> ForecastCase:
    gain = median(one.tokens_per_s / run.tokens_per_s for one, run in zip(alone, runs, strict=True))
    border = 1.0 if "parallelism" in case.how else CLEARLY_FASTER
    advised = median(run.advised_alone for run in runs) > 0.5
    return ForecastCase(
        tokens_per_s=median(run.tokens_per_s for run in runs),
        first_s=median(run.first_s for run in runs),
        decode=_ratio([run.foretold_tokens_per_s and run.tokens_per_s / run.foretold_tokens_per_s for run in runs]),
        first=_ratio([run.foretold_first_s and run.foretold_first_s / run.first_s for run in runs]),
        advice_is_right=None if border / NEAR < gain < border * NEAR else advised == (gain > border),
    )


def _ratio(found: Sequence[float | None]) -> float | None:
    known = [each for each in found if each]
    return median(known) if known else None


def _is_within(ratio: float | None) -> bool:
    return ratio is not None and 1 / WITHIN <= ratio <= WITHIN


def describe(result: ForecastResult) -> str:
    """The result for people."""
    return "\n".join(
        [
            f"{result.model} over 1 to {len(BUDGETS_GB)} simulated Macs, {PROMPT_TOKENS} tokens of prompt and "
            f"{result.tokens} of answer; {result.system}, {result.cores} cores; {len(result.rounds)} rounds.",
            "",
            f"  {'':24} {'tokens/s':>9} {'forecast':>9} {'first, s':>9} {'forecast':>9}  advice",
            *(_line(name, case) for name, case in result.cases.items()),
            "",
            "Times are the forecast's seconds divided by those measured.",
            *(result.verdict(name, words) for name, words in _WORDS_OF.items()),
        ]
    )


_WORDS_OF: Final = {
    "decode_within": f"Share of cases whose token was predicted within {100 * (WITHIN - 1):.0f} %",
    "first_within": "The same of the first token",
    "advice_right": "Share of cases in which the advice was right",
}


def _line(name: str, case: ForecastCase) -> str:
    decode, first = (f"{each:9.2f}" if each else f"{'-':>9}" for each in (case.decode, case.first))
    advice = {None: "too close to call", True: "right", False: "WRONG"}[case.advice_is_right]
    return f"  {name:24} {case.tokens_per_s:9.2f} {decode} {case.first_s:9.2f} {first}  {advice}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of this bench."""
    parser = argparse.ArgumentParser(
        prog="macluster bench forecast", description="Predicted speed of plans against measured speed."
    )
    parser.add_argument("--rounds", type=positive, default=3, help="rounds to take medians of (default %(default)s)")
    parser.add_argument("--tokens", type=positive, default=32, help="tokens per answer (default %(default)s)")
    parser.add_argument("--layers", type=positive, default=8, help="layers of the model (default %(default)s)")
    parser.add_argument(
        "--hidden", type=positive, default=256, help="its width, a multiple of 64 (default %(default)s)"
    )
    parser.add_argument("--dtype", choices=DTYPES, default=DTYPES[0], help="of its weights (default %(default)s)")
    return print_result(parser, lambda args: asyncio.run(measure(args)), describe, arguments)


if __name__ == "__main__":
    end_in_order()
    sys.exit(main())
