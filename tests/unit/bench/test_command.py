"""`macluster bench`: its list of benches, in a checkout and in a wheel."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from tests.benches import BENCHES
from tui.cli import bench as command
from tui.cli.parser import parser

PACKAGES = {"growth", "tui"}


@pytest.mark.parametrize("name", sorted(command.benches()))
def test_every_bench_has_a_command_line_of_its_own(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert parser().parse_args(["bench", name, "--anything"]).options == ["--anything"]
    module = command.benches()[name].module
    main = import_module(f"{module}.__main__" if name in PACKAGES else module).main
    for options, status in ((["--help"], 0), (["--nonsense"], 2)):
        with pytest.raises(SystemExit) as ended:
            main(options)
        assert ended.value.code == status
    assert f"macluster bench {name}" in capsys.readouterr().out


def test_every_bench_of_the_checkout_is_listed() -> None:
    with_a_command_line = {
        file.stem for file in command.CHECKOUT.glob("*.py") if "end_in_order()" in file.read_text("utf-8")
    }
    assert {*BENCHES} == with_a_command_line | PACKAGES


def test_a_wheel_offers_what_it_contains_and_says_where_the_others_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "CHECKOUT", tmp_path / "tests" / "benches")
    assert sorted(command.benches()) == ["pair", "scenarios"]
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(["bench", "hop"])
    assert ended.value.code == 2
    assert (
        "there is no hop here, only pair, scenarios. Benches for developers run in a checkout"
        in capsys.readouterr().err
    )
