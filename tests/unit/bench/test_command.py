"""`macluster bench` and the benches for developers: each has a command line of its own."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from tests import benches
from tui.cli.bench import BENCHES
from tui.cli.parser import parser

FOR_DEVELOPERS = {
    file.stem for file in Path(benches.__file__).parent.glob("*.py") if "end_in_order()" in file.read_text("utf-8")
}
PROGRAMS = {f"macluster bench {name}": module for name, (module, _) in BENCHES.items()} | {
    f"python -m tests.benches.{name}": f"tests.benches.{name}" for name in (*FOR_DEVELOPERS, "tui")
}


@pytest.mark.parametrize("program", sorted(PROGRAMS))
def test_every_bench_has_a_command_line_of_its_own(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = PROGRAMS[program]
    main = import_module(f"{module}.__main__" if module.endswith(".tui") else module).main
    for options, status in ((["--help"], 0), (["--nonsense"], 2)):
        with pytest.raises(SystemExit) as ended:
            main(options)
        assert ended.value.code == status
    assert f"usage: {program}" in capsys.readouterr().out


@pytest.mark.parametrize("name", BENCHES)
def test_the_command_leaves_the_options_of_a_bench_to_it(name: str) -> None:
    assert parser().parse_args(["bench", name, "--anything"]).options == ["--anything"]


def test_the_benches_of_developers_are_none_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(FOR_DEVELOPERS) > 10
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(["bench", "hop"])
    assert ended.value.code == 2
    assert "invalid choice" in capsys.readouterr().err
