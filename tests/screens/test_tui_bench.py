"""A short run of the UI's bench, in its real pseudo-terminals."""

from __future__ import annotations

import json
from contextlib import redirect_stdout
from io import StringIO

import pytest

import tests.benches.tui.__main__ as bench
from tests.benches.tui.source import FILL_TOKENS

pytestmark = pytest.mark.nightly


def test_the_bench_of_the_ui_runs_and_says_all_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    for wait in ("IDLE_S", "IDLE_KEY_EVERY_S", "SETTLE_S"):
        monkeypatch.setattr(bench, wait, 0.5)
    monkeypatch.setattr(bench, "HOME", bench.Load(3, 1, FILL_TOKENS))
    with redirect_stdout(StringIO()) as said:
        assert bench.main(["--runs", "1", "--keys", "3", "--json"]) == 0
    shown = json.loads(said.getvalue())
    assert set(shown["reach"]) == set(bench.LIMITS)
    assert all(shown[figure] > 0 for figure in bench.LIMITS)
