"""SECURITY.md names the test behind each promise: every one of them must exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def test_every_test_that_a_promise_names_exists() -> None:
    named = TEST.findall((ROOT / "SECURITY.md").read_text("utf-8"))
    assert len(named) > 30
    for path, name in named:
        source = (ROOT / path).read_text("utf-8")
        assert re.search(rf"^(async )?def {name}\(" if name else "^def test_", source, re.MULTILINE), f"{path}::{name}"


def test_every_attacker_has_a_row() -> None:
    rows = re.findall(r"^\| (T\d+) \|", (ROOT / "SECURITY.md").read_text("utf-8"), re.MULTILINE)
    assert rows == [f"T{number}" for number in range(1, 16)]
