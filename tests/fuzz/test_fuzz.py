"""The fuzzers themselves: each target passes a short run, and a planted defect is found, kept and played again."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.fuzz import runner
from tests.fuzz.target import Target


@pytest.mark.parametrize("name", runner.NAMES)
def test_a_moment_of_fuzzing_breaks_nothing(name: str, tmp_path: Path) -> None:
    target = runner.load(name)
    with ExitStack() as stack:  # what a target patches reaches no other test
        stack.callback(target.end)
        for seed in target.seeds:
            target.attack(seed)
        stack.pop_all()
    tried, broken = runner.fuzz(target, 0.5, 1, tmp_path)
    assert broken is None
    assert tried


def test_a_defect_is_found_kept_and_played_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def attack(data: bytes) -> None:
        if b"x" not in data:
            raise IndexError("planted")

    planted = Target("planted", attack, [b"abcx"])
    _, broken = runner.fuzz(planted, 10, 1, tmp_path)
    assert broken
    assert "planted" in capsys.readouterr().err
    monkeypatch.setattr(runner, "load", lambda name: planted)
    with pytest.raises(IndexError, match="planted"):
        runner.replay(broken)
