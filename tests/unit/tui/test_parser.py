from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import msgspec
import pytest

from core.events import Parallelism
from core.settings import default_home
from core.version import program_version
from tests.support.screen_events import PLAN
from tui.cli.load import is_shared_so
from tui.cli.parser import parser


def test_the_version_names_what_it_runs_on(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"macluster {program_version()} (mlx {version('mlx')}, mlx-lm ")


@pytest.mark.parametrize(
    ("asked", "how", "same"),
    [
        ("", None, True),
        ("--topology private", None, True),
        ("--topology forward", None, False),
        ("--parallelism pp", None, False),
        ("--parallelism pp", Parallelism(choice="pp", strategy="pp", reason="r"), True),
        ("--parallelism auto", Parallelism(choice="pp", strategy="pp", reason="r"), False),
        ("--parallelism auto", Parallelism(choice="auto", strategy="pp", reason="r"), True),
        ("--parallelism auto --rdma", Parallelism(choice="auto", strategy="pp", reason="r"), True),
        ("--parallelism tp", Parallelism(choice="tp", strategy="tp", reason="r"), True),
        ("--parallelism tp --rdma", Parallelism(choice="tp", strategy="tp", reason="r"), False),
        ("--parallelism tp --rdma", Parallelism(choice="tp", strategy="tp", reason="r", group="rdma"), True),
        ("--parallelism tp", Parallelism(choice="tp", strategy="tp", reason="r", group="rdma"), False),
        ("", Parallelism(choice="tp", strategy="tp", reason="r", group="rdma"), True),
    ],
)
def test_what_is_loaded_is_shared_as_was_asked_for_or_it_is_another_plan(
    asked: str, how: Parallelism | None, same: bool
) -> None:
    loaded = msgspec.structs.replace(PLAN, parallelism=how)
    assert is_shared_so(loaded, parser().parse_args(["run", "m", *asked.split()])) is same


@pytest.mark.parametrize(
    "words", ["--home h unload", "unload --home h", "models --home h", "session --home h list", "session list --home h"]
)
def test_the_home_may_stand_before_and_behind_the_command(words: str) -> None:
    assert parser().parse_args(words.split()).home == Path("h")
    assert parser().parse_args(["unload"]).home == default_home().root


@pytest.mark.parametrize("port", ["0", "65536", "-1", "x"])
def test_a_port_is_one_that_can_be_served(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["demo", "--serve", port])
    assert "--serve" in capsys.readouterr().err
