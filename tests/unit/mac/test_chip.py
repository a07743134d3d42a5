"""A Mac's description of its chip."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

from core.mac import chip


@pytest.mark.parametrize(
    ("says", "name"),
    [
        pytest.param('echo "Ada’s Mac mini"', "Ada’s Mac mini", id="the name that its owner gave it"),
        pytest.param("exit 1", "adas-mini", id="none: the one on the network"),
    ],
)
def test_a_mac_is_called_as_its_owner_calls_it(
    says: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "scutil"
    program.write_text(f'#!/bin/sh\n[ "$*" = "--get ComputerName" ] || exit 2\n{says}\n')
    program.chmod(0o700)
    monkeypatch.setattr(chip, "SCUTIL", str(program))
    monkeypatch.setattr(platform, "node", lambda: "adas-mini.local")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert chip.computer_name() == name


def test_the_brand_becomes_a_short_name() -> None:
    assert chip.parse_brand("Apple M2 Ultra\n") == "M2 Ultra"
