from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from core.node.peers.messages import Greeting
from core.node.peers.versions import installed_by, own_greeting, why_apart, wire_between

OURS = Greeting(version="0.2.0", wire=(1, 2), compute="c" * 16, mlx_lm="0.32.2", mlx="0.32.4", installed_by="pip")


def other(**changes: Any) -> Greeting:
    return msgspec.structs.replace(OURS, installed_by="uv", **changes)


def test_macs_that_compute_alike_and_know_a_version_share_a_model() -> None:
    assert why_apart("mini", other(version="0.1.9", wire=(1, 1), mlx="0.31.0"), OURS) is None


@pytest.mark.parametrize(
    ("theirs", "what", "where"),
    [
        (other(version="0.1.0", wire=(1, 1), compute=""), "macluster 0.1.0, this Mac macluster 0.2.0", "mini"),
        (other(version="0.10.0", wire=(3, 4)), "macluster 0.10.0, this Mac macluster 0.2.0", "this Mac"),
        (
            other(mlx_lm="0.32.10", compute="d" * 16),
            "macluster 0.2.0 with mlx-lm 0.32.10, this Mac macluster 0.2.0 with mlx-lm 0.32.2",
            "this Mac",
        ),
        (other(compute="d" * 16), "macluster 0.2.0 (code ddddddd), this Mac macluster 0.2.0 (code ccccccc)", "mini"),
        (Greeting(installed_by="rm -rf"), "macluster of an unknown version with mlx-lm of an unknown version", "mini"),
    ],
)
def test_what_keeps_two_macs_apart_is_said_with_the_line_to_type_on_the_older_one(
    theirs: Greeting, what: str, where: str
) -> None:
    problem = why_apart("mini", theirs, OURS)
    assert problem
    assert f"mini has {what}" in problem.what
    known = where == "mini" and theirs.installed_by == "uv"
    update = "uv tool upgrade macluster" if known else "pip install --upgrade macluster"
    assert problem.fix == f"On {where}: `{update}`, then `macluster restart`."


@pytest.mark.parametrize(
    ("one", "two", "both"), [((1, 1), (1, 1), 1), ((1, 3), (2, 5), 3), ((1, 2), (3, 4), None), ((4, 4), (1, 2), None)]
)
def test_two_macs_talk_in_the_newest_version_that_both_know(
    one: tuple[int, int], two: tuple[int, int], both: int | None
) -> None:
    assert wire_between(other(wire=one), other(wire=two)) == wire_between(other(wire=two), other(wire=one)) == both


def test_a_greeting_says_what_this_mac_runs() -> None:
    own = own_greeting()
    assert len(own.compute) == 16
    assert own.runs_on.startswith(f"mlx-lm {own.mlx_lm} · mlx {own.mlx} · Python 3.")


def test_the_installer_is_known_by_what_it_left(tmp_path: Path) -> None:
    assert installed_by(tmp_path) == "pip"
    for name, left in (("pipx", "pipx_metadata.json"), ("uv", "uv-receipt.toml")):
        (tmp_path / left).touch()
        assert installed_by(tmp_path) == name
