from __future__ import annotations

from importlib.metadata import version

import pytest

from tui.cli.parser import parser


def test_the_version_names_what_it_runs_on(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"macluster {version('macluster')} (mlx {version('mlx')}, mlx-lm ")
