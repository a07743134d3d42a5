"""Verdicts and medians of benches."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path

import pytest

from core.bench.bench_models import ModelSize
from core.bench.figures import medians, print_result, reach
from core.bench.hop import HopResult, LaneTurn, summary
from core.bench.macs import make_macs
from core.bench.partner import partner
from core.bench.solo import SoloRun
from core.bench.solo import summary as solo_summary
from core.errors import WorkerDied
from core.trust.roster import Cluster
from tui.cli.parser import parser


def a_round(sealed: float, raw: float) -> dict[str, LaneTurn]:
    turns = {"sealed": sealed, "raw": raw, "memory_sealed": 2.0, "memory_raw": 1.0}
    return {lane: LaneTurn(cpu_us=(cpu, cpu), rtt_us=cpu, parts_us={"seal": cpu}) for lane, cpu in turns.items()}


def test_a_reach_is_a_bound_from_one_side() -> None:
    assert reach(4.0, at_most=4.0).reached
    assert not reach(4.01, at_most=4.0).reached
    assert reach(0.97, at_least=0.97).reached
    assert not reach(0.96, at_least=0.97).reached


def test_a_reach_that_does_not_count_says_so() -> None:
    assert "NOT reached" in reach(0.5, at_least=0.97).line("speed", 0.5)
    assert "does not count here" in reach(0.5, at_least=0.97, counts=False).line("speed", 0.5)


def test_medians_go_by_name() -> None:
    assert medians([{"a": 1.0, "b": 9.0}, {"a": 3.0, "b": 5.0}, {"a": 2.0, "b": 7.0}]) == {"a": 2.0, "b": 7.0}


def test_the_ratio_is_the_median_of_ratios_within_rounds() -> None:
    # noise that slows a whole round down leaves its ratio alone
    result = summary([a_round(20, 10), a_round(300, 100), a_round(500, 100)], 1)
    assert result.ratios["sealed_over_raw_cpu"] == 3
    assert result.cpu_us_per_side["sealed"] == 300


@pytest.mark.parametrize(("tokens_per_s", "counts"), [(10.0, True), (100.0, False)])
def test_the_reach_of_solo_counts_only_where_a_token_takes_long(tokens_per_s: float, counts: bool) -> None:
    run = SoloRun(
        solo_tokens_per_s=tokens_per_s,
        one_tokens_per_s=tokens_per_s,
        split_tokens_per_s=tokens_per_s,
        solo_token_ms=1e3 / tokens_per_s,
        split_token_ms=1e3 / tokens_per_s,
        same_tokens=True,
        stages_ms=[],
        outside_compute_ms=0.3,
    )
    verdict = solo_summary([run], 48, ModelSize(12, 1024, "float32")).reach["two_stages_over_solo"]
    assert (verdict.reached, verdict.counts) == (True, counts)


def test_an_error_is_said_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    def measure(_: argparse.Namespace) -> HopResult:
        raise WorkerDied("It ended.")

    assert print_result(argparse.ArgumentParser(prog="bench"), measure, str, []) == 1
    assert "bench: It ended." in capsys.readouterr().err


def test_a_partner_that_ends_is_noticed() -> None:
    with partner(print) as other, pytest.raises(WorkerDied):
        other.receive(60)


@pytest.mark.parametrize("bench", ["batch", "hop", "prefill", "reuse", "schema", "solo", "speculate", "topology"])
def test_the_command_names_every_bench_and_each_has_options_of_its_own(
    bench: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert parser().parse_args(["bench", bench]).name == bench
    for options, status in ((["--help"], 0), (["--nonsense"], 2)):
        with pytest.raises(SystemExit) as ended:
            import_module(f"core.bench.{bench}").main(options)
        assert ended.value.code == status
    assert f"macluster bench {bench}" in capsys.readouterr().out


def test_made_macs_are_one_cluster(tmp_path: Path) -> None:
    macs = make_macs(tmp_path, 3)
    assert [m.device_id for m in macs.cluster.roster.members] == [i.device_id for i in macs.identities]
    assert Cluster.decode(macs.cluster.encode()) == macs.cluster
