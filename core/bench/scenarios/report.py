"""The report of scenarios, in Markdown and as JSON values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from core.bench.scenarios.assertions import Assertion, assertions, time_text
from core.bench.scenarios.definitions import Scenario
from core.bench.scenarios.percentiles import (
    HTTP_BUSY,
    HTTP_OK,
    RATE,
    ReplyFigures,
    Segment,
    per_second,
    segments,
)


class AskedServer(msgspec.Struct, frozen=True, kw_only=True):
    """A model that was tested."""

    model: str
    providers: int = 0  # Macs besides the head; 0 for another server
    ram_gb: tuple[float, ...] = ()  # of each Mac, the head first; empty for another server


class LoadLevel(msgspec.Struct, frozen=True, kw_only=True):
    """How requests were sent."""

    rate: float | None = None  # requests per second in an open loop; None is a closed loop
    seed: int = 0
    warm_up: int = 0  # requests per model before


class ScenarioResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one scenario."""

    name: str
    scenario: Scenario
    load: LoadLevel
    models: tuple[AskedServer, ...]
    requests: int
    succeeded: int
    refused: int  # with status 429
    duration_s: float
    requests_per_s: float
    segments: dict[str, Segment]
    assertions: list[Assertion]
    problems: tuple[str, ...] = ()  # other failures, each once


class ScenariosResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of all scenarios, as `--json` prints it."""

    runner: str  # the machine
    date: str  # in UTC
    scenarios: list[ScenarioResult]

    @property
    def holds(self) -> bool:
        return all(row.passed for one in self.scenarios for row in one.assertions)


class LoadOutcome(NamedTuple):
    """Measurements of one scenario."""

    replies: Sequence[ReplyFigures]
    duration_s: float  # from the first request to the end of the last response
    problems: Sequence[str] = ()


def result(scenario: Scenario, load: LoadLevel, models: Sequence[AskedServer], measured: LoadOutcome) -> ScenarioResult:
    """Statistics and assertions of a measured scenario."""
    replies = measured.replies
    found = segments(replies)
    succeeded = sum(reply.status == HTTP_OK for reply in replies)
    return ScenarioResult(
        name=scenario.name,
        scenario=scenario,
        load=load,
        models=tuple(models),
        requests=len(replies),
        succeeded=succeeded,
        refused=sum(reply.status == HTTP_BUSY for reply in replies),
        duration_s=measured.duration_s,
        requests_per_s=per_second(succeeded, measured.duration_s),
        segments=found,
        assertions=assertions(found, replies),
        problems=tuple(dict.fromkeys(measured.problems)),
    )


def markdown(report: ScenariosResult) -> str:
    lines = ["# Scenarios", "", f"Runner: {report.runner} | Date: {report.date} UTC"]
    for one in report.scenarios:
        lines += ["", *_scenario(one)]
    return "\n".join(lines) + "\n"


def _scenario(one: ScenarioResult) -> Iterator[str]:
    asked = one.scenario
    yield f"## {one.name}"
    yield ""
    providers = sum(model.providers for model in one.models)
    yield (
        f"{providers} providers, {asked.users} users, {one.requests} requests, concurrency={asked.concurrency}, "
        f"streaming={asked.streams}"
    )
    yield from _table("Model|Providers|RAM", (_model(model) for model in one.models))
    yield from _table("Metric|Value", _metrics(one))
    yield from _table("Segment|Count|Mean|P50|P95|Max", (_segment(*each) for each in one.segments.items()))
    yield from _table(
        "Assertion|Result|Detail",
        (f"{row.name}|{'PASS' if row.passed else 'FAIL'}|{row.detail}" for row in one.assertions),
    )


def _table(heads: str, rows: Iterator[str]) -> Iterator[str]:
    yield ""
    yield f"|{heads}|"
    yield "|" + "---|" * len(heads.split("|"))
    for row in rows:
        yield f"|{row}|"


def _model(model: AskedServer) -> str:
    ram = ", ".join(f"{each:g}" for each in model.ram_gb)
    return f"{model.model}|{model.providers}|{f'{ram} GB' if ram else 'not known'}"


def _metrics(one: ScenarioResult) -> Iterator[str]:
    yield f"succeeded|{one.succeeded} of {one.requests}"
    yield f"refused (429)|{one.refused}"
    yield f"duration|{one.duration_s:.3f} s"
    yield f"requests/s|{one.requests_per_s:.1f}"
    rate = one.load.rate
    yield f"loop|{f'open, {rate:g} requests/s, seed {one.load.seed}' if rate else 'closed'}"
    yield f"warm-up|{one.load.warm_up} requests a model"
    if e2e := one.segments.get("total_e2e"):
        for name, between in (("p50", e2e.p50_between), ("p95", e2e.p95_between)):
            low, high = (time_text(each, e2e.max) for each in between)
            yield f"total_e2e {name}, 95 % confidence|{low} to {high}"
    for problem in one.problems:
        yield f"problem|{problem.replace('|', '/')}"


def _segment(name: str, one: Segment) -> str:
    if name == RATE:
        figures = [f"{each:.1f}/s" for each in (one.mean, one.p50, one.p95, one.max)]
    else:
        figures = [time_text(each, one.max) for each in (one.mean, one.p50, one.p95, one.max)]
    return "|".join([name, str(one.count), *figures])
