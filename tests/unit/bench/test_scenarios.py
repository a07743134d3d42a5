"""The arithmetic of scenarios, their assertions, and their report."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator

import msgspec
import pytest

from core.bench.scenarios.definitions import HEAVY_BYTES, SCENARIOS, Scenario, asked, chosen, prompt
from core.bench.scenarios.percentiles import ReplyFigures, per_second, segment, segments
from core.bench.scenarios.report import (
    LIMITS,
    AskedServer,
    Limit,
    LoadLevel,
    LoadOutcome,
    ScenarioResult,
    ScenariosResult,
    assertions,
    markdown,
    result,
    time_text,
)
from core.bench.scenarios.throughput_chart import svg
from core.errors import UsageError

LAPS = {"parse": 16.5e-6, "reserve": 1e-3, "encrypt": 90e-6, "dispatch": 2e-3}
SMALL = Scenario(name="small", providers=(1,), users=2, requests=4, concurrency=2, max_tokens=8)


def answered(**laps: float) -> ReplyFigures:
    return ReplyFigures(200, 0.5, 0.1, 9, 0.4, {**LAPS, **laps})


def of(replies: list[ReplyFigures], duration_s: float = 3.852, load: LoadLevel = LoadLevel()) -> ScenarioResult:  # noqa: B008 - frozen
    return result(
        SMALL, load, [AskedServer(model="made-a", providers=1, ram_gb=(4, 4))], LoadOutcome(replies, duration_s)
    )


# name, providers, users, requests, concurrency, max tokens
TABLE = """
1-provider-streaming|1|1|30|5|64
1-provider-non-streaming|1|1|20|5|64
7-provider-multi-model|4+3|5|50|10|64
3-provider-high-concurrency|3|10|60|20|32
1-provider-queue-saturation|1|10|40|15|32
3-provider-20-users|3|20|60|10|32
1-provider-scaling|1|5|30|10|32
3-provider-scaling|3|5|30|10|32
5-provider-scaling|5|5|30|10|32
3-provider-heavy-100conc-10kb|3|20|100|100|32
"""


def test_the_ten_are_those_of_the_table() -> None:
    def row(one: Scenario) -> str:
        providers = "+".join(map(str, one.providers))
        return f"{one.name}|{providers}|{one.users}|{one.requests}|{one.concurrency}|{one.max_tokens}"

    assert [row(one) for one in SCENARIOS.values()] == TABLE.split()
    assert [one.name for one in SCENARIOS.values() if not one.streams] == ["1-provider-non-streaming"]
    assert [one.queue for one in SCENARIOS.values()] == [100, 100, *[200] * 8]
    assert chosen([]) == tuple(SCENARIOS.values())
    assert chosen(["3-provider-scaling"]) == (SCENARIOS["3-provider-scaling"],)
    with pytest.raises(UsageError, match="no scenario 'x'"):
        chosen(["x"])


def test_prompts_users_and_models_take_turns() -> None:
    multi = asked(SCENARIOS["7-provider-multi-model"], None, 0)
    assert multi[6].prompt == "What is 6+7? Answer with just the number."
    assert [(each.user, each.model) for each in multi[:6]] == [(0, 0), (1, 1), (2, 0), (3, 1), (4, 0), (0, 1)]
    assert {each.start_s for each in multi} == {0.0}
    assert len(prompt(99, HEAVY_BYTES).encode()) == HEAVY_BYTES
    assert prompt(99, HEAVY_BYTES).strip() == prompt(99, HEAVY_BYTES)


def test_an_open_loop_has_its_rate_and_a_seed_says_when() -> None:
    scenario = msgspec.structs.replace(SMALL, requests=2000)
    one, same, other = (asked(scenario, 20.0, seed) for seed in (1, 1, 2))
    assert one == same != other
    starts = [each.start_s for each in one]
    assert starts == sorted(starts)
    assert starts[-1] == pytest.approx(100, rel=0.1)


@pytest.mark.parametrize(
    ("successes", "duration_s", "told"),
    [(4, 3.852, "1.0"), (50, 10.615, "4.7"), (60, 5.424, "11.1"), (12, 2.789, "4.3")],
)
def test_requests_a_second(successes: int, duration_s: float, told: str) -> None:
    assert f"{per_second(successes, duration_s):.1f}" == told


@pytest.mark.parametrize(
    ("count", "p50", "p95"), [(1, 0, 0), (2, 1, 1), (4, 2, 3), (20, 10, 19), (21, 10, 19), (30, 15, 28), (100, 50, 95)]
)
def test_percentiles_by_rank(count: int, p50: int, p95: int) -> None:
    found = segment([float(number) for number in reversed(range(count))])
    assert (found.count, found.p50, found.p95, found.max) == (count, p50, p95, count - 1)
    assert found.mean == (count - 1) / 2
    assert found.p50_between[0] <= found.p50 <= found.p50_between[1]
    assert found.p95_between[0] <= found.p95 <= found.p95_between[1]


def test_confidence_is_that_of_the_ranks() -> None:
    found = segment([float(number) for number in range(100)])
    assert (found.p50_between, found.p95_between) == ((40.0, 60.0), (90.0, 99.0))


def test_only_what_was_answered_counts() -> None:
    found = segments([answered(), ReplyFigures(429, 9.0), ReplyFigures(0, 9.0), ReplyFigures(500, 9.0, laps=LAPS)])
    assert {name: each.count for name, each in found.items()} == dict.fromkeys(
        ("total_e2e", "parse", "reserve", "encrypt", "dispatch", "ttft", "decode_tps"), 1
    )
    assert found["decode_tps"].mean == pytest.approx(20.0)


def rows(replies: list[ReplyFigures]) -> list[str]:
    found = assertions(segments(replies), replies)
    return [f"{row.name} {'PASS' if row.passed else 'FAIL'} {row.detail}" for row in found]


def test_rows_as_they_read() -> None:
    assert rows([answered()]) == [
        "parse:mean<=1ms PASS mean=16.5µs (threshold=1ms)",
        "parse:p95<=5ms PASS p95=16.5µs (threshold=5ms)",
        "reserve:mean<=50ms PASS mean=1.0ms (threshold=50ms)",
        "reserve:p95<=200ms PASS p95=1.0ms (threshold=200ms)",
        "encrypt:mean<=5ms PASS mean=90.0µs (threshold=5ms)",
        "encrypt:p95<=50ms PASS p95=90.0µs (threshold=50ms)",
        "dispatch:mean<=5ms PASS mean=2.0ms (threshold=5ms)",
        "dispatch:p95<=50ms PASS p95=2.0ms (threshold=50ms)",
    ]


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.segment)
def test_beyond_its_threshold_a_row_fails_and_no_other(limit: Limit) -> None:
    slow = rows([answered(**{limit.segment: (limit.p95_ms + 0.1) / 1e3})])
    assert [row.split(":")[0] for row in slow if " FAIL " in row] == [limit.segment] * 2
    exact = rows([answered(**{limit.segment: limit.mean_ms / 1e3})])
    assert all(" PASS " in row for row in exact)


def test_a_segment_without_data_fails() -> None:
    laps = {name: value for name, value in LAPS.items() if name != "encrypt"}
    told = rows([ReplyFigures(200, 0.5, laps=laps)])
    assert "encrypt:present FAIL no data for segment encrypt" in told
    assert sum(" PASS " in row for row in told) == 6


def test_where_nothing_was_answered_every_refusal_must_be_a_proper_one() -> None:
    assert rows([ReplyFigures(429, 0.1)] * 2) == ["refusals:429 PASS 2 of 2 requests were refused with status 429"]
    assert rows([ReplyFigures(429, 0.1), ReplyFigures(503, 0.1)])[0].startswith("refusals:429 FAIL 1 of 2")
    assert rows([])[0].startswith("refusals:429 FAIL 0 of 0")


@pytest.mark.parametrize(
    ("seconds", "most_s", "told"), [(16.5e-6, 999e-6, "16.5µs"), (16.5e-6, 1e-3, "0.0ms"), (1.25, 2.0, "1250.0ms")]
)
def test_a_row_is_in_the_unit_of_its_largest(seconds: float, most_s: float, told: str) -> None:
    assert time_text(seconds, most_s) == told


def report_of(*results: ScenarioResult) -> ScenariosResult:
    return ScenariosResult(runner="Linux x86_64, 2 cores", date="2026-01-02 03:04", scenarios=list(results))


def test_the_report() -> None:
    whole = report_of(of([answered(), answered(), answered(), answered(), ReplyFigures(429, 0.1)]))
    told = markdown(whole).splitlines()
    for line in (
        "Runner: Linux x86_64, 2 cores | Date: 2026-01-02 03:04 UTC",
        "1 providers, 2 users, 5 requests, concurrency=2, streaming=True",
        "|made-a|1|4, 4 GB|",
        "|succeeded|4 of 5|",
        "|requests/s|1.0|",
        "|Segment|Count|Mean|P50|P95|Max|",
        "|parse|4|16.5µs|16.5µs|16.5µs|16.5µs|",
        "|dispatch|4|2.0ms|2.0ms|2.0ms|2.0ms|",
        "|decode_tps|4|20.0/s|20.0/s|20.0/s|20.0/s|",
        "|parse:mean<=1ms|PASS|mean=16.5µs (threshold=1ms)|",
    ):
        assert line in told
    assert whole.holds
    assert not report_of(of([answered(parse=0.02)])).holds


def test_what_programs_read() -> None:
    (one,) = msgspec.json.decode(msgspec.json.encode(report_of(of([answered(), ReplyFigures(429, 0.1)]))))["scenarios"]
    assert (one["name"], one["requests"], one["succeeded"], one["refused"]) == ("small", 2, 1, 1)
    assert one["duration_s"] == 3.852
    assert one["segments"]["parse"]["count"] == 1
    assert one["assertions"][0] == {
        "name": "parse:mean<=1ms",
        "passed": True,
        "detail": "mean=16.5µs (threshold=1ms)",
    }


def test_the_picture_has_a_point_a_level_and_joins_those_of_one_name() -> None:
    def parts(*results: ScenarioResult) -> Iterator[str]:
        for element in ET.fromstring(svg(results, "a <b> machine")).iter():
            yield element.tag.rpartition("}")[2]

    levels = [of([answered()] * 4, seconds, LoadLevel(rate=rate)) for rate, seconds in ((1.0, 4.0), (2.0, 2.0))]
    assert [list(parts(*levels)).count(tag) for tag in ("circle", "polyline")] == [3, 1]  # and one of the legend
    assert list(parts(levels[0])).count("polyline") == 0
    assert "circle" not in list(parts(of([ReplyFigures(429, 0.1)])))
