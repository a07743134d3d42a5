"""What a process must never load: the tui and the node's start no mlx, the worker no screen."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("imports", "forbidden"),
    [
        ("tui.cli.parser, tui.app", {"mlx", "mlx_lm", "transformers", "tokenizers", "torch"}),
        (
            "tui.cli.main, tui.app",
            {"httpx2", "psutil", "tui.cli.parser", "tui.cli.output", "tui.cli.demo", "core.plan.fit"},
        ),
        ("core.node.service, core.node.__main__", {"mlx", "mlx_lm", "transformers", "textual", "rich", "tui"}),
        ("core.worker.main", {"textual", "rich", "tui", "core.node", "zeroconf", "aiohttp"}),
    ],
    ids=["commands", "screen", "node", "worker"],
)
def test_a_process_imports_nothing_that_it_must_not(imports: str, forbidden: set[str]) -> None:
    script = f"import sys, {imports}; print('\\n'.join(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    assert set(ran.stdout.split()) & forbidden == set()
