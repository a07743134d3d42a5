"""An update under a running process: what is said, what is started, and how it is made."""

from __future__ import annotations

import json
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import Any

import pytest

from core.mac.installation import (
    Installation,
    Look,
    is_updated,
    looked,
    outdated,
    update_commands,
    why_no_child,
)

OURS = Installation("0.1.0+aaaaaaa", "0.32.2")
CHECKOUT = OURS._replace(is_checkout=True)
UPDATED = "macluster {} is installed, the node runs 0.1.0+aaaaaaa: `macluster restart`."
OTHER_MLX = "mlx-lm 0.33.0 is installed, the node runs 0.32.2: `macluster restart`."
REMOVED = "macluster 0.1.0+aaaaaaa was removed from this Mac: install it again, then `macluster restart`."


@pytest.mark.parametrize(
    ("ours", "found", "said", "refused"),
    [
        (OURS, OURS, "", ""),
        (OURS, OURS._replace(version="0.2.0"), UPDATED.format("0.2.0"), UPDATED.format("0.2.0")),
        (OURS, OURS._replace(version="0.1.0+b"), UPDATED.format("0.1.0+b"), UPDATED.format("0.1.0+b")),
        (CHECKOUT, CHECKOUT._replace(version="0.1.0+b"), UPDATED.format("0.1.0+b"), ""),
        (CHECKOUT, CHECKOUT._replace(version="0.2.0+b"), UPDATED.format("0.2.0+b"), UPDATED.format("0.2.0+aaaaaaa")),
        (CHECKOUT, CHECKOUT._replace(mlx_lm="0.33.0"), OTHER_MLX, OTHER_MLX),
        (OURS, None, REMOVED, REMOVED),
        (None, OURS, "", ""),
    ],
)
def test_an_update_is_told_and_no_child_of_another_version_is_started(
    ours: Installation | None, found: Installation | None, said: str, refused: str
) -> None:
    assert (outdated(ours, found), why_no_child(ours, found)) == (said, refused)


def test_an_update_counts_once_it_has_stood_for_a_minute() -> None:
    look, then = Look(OURS, 0.0), {}
    half = OURS._replace(version="0.2.0")
    whole = half._replace(mlx_lm="0.33.0")
    for now, found in enumerate([OURS, None, None, half, whole, whole, whole, None, OURS, OURS]):
        look = looked(look, found, now * 40.0)
        then[now] = is_updated(look, OURS, now * 40.0)
    assert [now for now, is_due in then.items() if is_due] == [6]


PIP = ["/v/bin/python", "-m", "pip", "install"]


@pytest.mark.parametrize(
    ("installer", "origin", "left", "commands"),
    [
        ("uv", {}, "uv-receipt.toml", ["uv tool upgrade macluster"]),
        ("pip", {}, "pipx_metadata.json", ["pipx upgrade macluster"]),
        ("pip", {}, "", ["/v/bin/python -m pip install --upgrade macluster"]),
        ("uv", {}, "", ["uv pip install --python /v/bin/python --upgrade macluster"]),
        (
            "pip",
            {"url": "https://x/m", "vcs_info": {"vcs": "git"}},
            "",
            ["/v/bin/python -m pip install --upgrade 'macluster @ git+https://x/m'"],
        ),
        (
            "pip",
            {"url": "file:///my%20code", "dir_info": {"editable": True}},
            "",
            ["git -C '/my code' pull", "/v/bin/python -m pip install --editable '/my code'"],
        ),
    ],
    ids=["uv tool", "pipx", "pip", "uv", "git", "checkout"],
)
def test_the_update_is_the_installers_command(
    tmp_path: Path, installer: str, origin: dict[str, Any], left: str, commands: list[str]
) -> None:
    (tmp_path / "INSTALLER").write_text(f"{installer}\n")
    (tmp_path / "direct_url.json").write_text(json.dumps(origin))
    if left:
        (tmp_path / left).touch()
    assert update_commands(PathDistribution(tmp_path), tmp_path, "/v/bin/python") == commands
