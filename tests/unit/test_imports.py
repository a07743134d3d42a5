"""Imports that a process must never load: no mlx in the tui and at the node's start, no screen in the worker."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import core
from screenshots import architecture


@pytest.mark.slow
@pytest.mark.parametrize(
    ("imports", "forbidden"),
    [
        (
            "tui.cli.main, tui.cli.parser, tui.control.preferences",
            {"mlx", "mlx_lm", "transformers", "tokenizers", "torch", "textual", "keyring", "cryptography", "httpx2"},
        ),
        (
            "tui.cli.main, tui.app",
            {"mlx", "httpx2", "psutil", "tui.cli.parser", "tui.cli.output", "tui.cli.demo", "core.plan.make_plan"},
        ),
        ("core.node.process", {"mlx", "mlx_lm", "transformers", "jinja2", "textual", "rich", "tui"}),
        ("core.worker.main", {"textual", "rich", "tui", "core.node", "zeroconf", "aiohttp"}),
    ],
    ids=["commands", "screen", "node", "worker"],
)
def test_a_process_imports_nothing_that_it_must_not(imports: str, forbidden: set[str]) -> None:
    script = f"import sys, {imports}; print('\\n'.join(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    assert set(ran.stdout.split()) & forbidden == set()


@pytest.mark.slow
def test_the_picture_of_the_architecture_is_drawn_from_todays_imports_none_of_which_climbs() -> None:
    found = architecture.rooms()
    floor = {room: number for number, room in enumerate(found)}
    climbing = [pair for pair in architecture.imports_between(found) if floor[pair[0]] > floor[pair[1]]]
    assert climbing == []
    assert architecture.PICTURE.read_text() == architecture.drawn(), "`make screenshots` draws it again"


def test_no_class_name_stands_twice_in_core() -> None:
    files = Path(core.__file__).parent.rglob("*.py")
    names = Counter(
        name for path in files for name in re.findall(r"^ *class (\w+)[:(\[]", path.read_text(), re.MULTILINE)
    )
    assert len(names) > 500
    assert [name for name, times in names.items() if times > 1] == []
