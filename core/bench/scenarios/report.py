"""The report of scenarios, in Markdown and as JSON values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from core.bench.scenarios.definitions import Scenario
from core.bench.scenarios.percentiles import HTTP_BUSY, HTTP_OK, RATE, ReplyFigures, Segment, per_second, segments


class Limit(NamedTuple):
    """Upper limits of one segment, in milliseconds."""

    segment: str
    mean_ms: float
    p95_ms: float


LIMITS: Final = (Limit("parse", 1, 5), Limit("reserve", 50, 200), Limit("encrypt", 5, 50), Limit("dispatch", 5, 50))


class Assertion(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the report."""

    name: str
    passed: bool
    detail: str


def assertions(found: Mapping[str, Segment], replies: Sequence[ReplyFigures]) -> list[Assertion]:
    """Check the segments of a scenario. If no request was answered, every refusal must be a 429."""
    if not any(reply.status == HTTP_OK for reply in replies):
        refused = sum(reply.status == HTTP_BUSY for reply in replies)
        detail = f"{refused} of {len(replies)} requests were refused with status {HTTP_BUSY}"
        return [Assertion(name="refusals:429", passed=0 < refused == len(replies), detail=detail)]
    return [row for limit in LIMITS for row in _rows(limit, found.get(limit.segment))]


def _rows(limit: Limit, found: Segment | None) -> Iterator[Assertion]:
    name = limit.segment
    if found is None:
        yield Assertion(name=f"{name}:present", passed=False, detail=f"no data for segment {name}")
        return
    yield _row(name, "mean", found.mean, limit.mean_ms)
    yield _row(name, "p95", found.p95, limit.p95_ms)


def _row(name: str, what: Literal["mean", "p95"], seconds: float, most_ms: float) -> Assertion:
    return Assertion(
        name=f"{name}:{what}<={most_ms:g}ms",
        passed=1e3 * seconds <= most_ms,
        detail=f"{what}={time_text(seconds, seconds)} (threshold={most_ms:g}ms)",
    )


def time_text(seconds: float, most_s: float) -> str:
    """In µs if `most_s`, the largest value of the row, is below a millisecond, else in ms."""
    return f"{1e6 * seconds:.1f}µs" if most_s < 1e-3 else f"{1e3 * seconds:.1f}ms"


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
