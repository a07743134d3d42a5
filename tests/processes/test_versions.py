"""An update under a running node: a command of the later version says so, and `macluster restart` starts it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from core.settings import Home
from core.version import RELEASE
from tests.support.nodes import START_S, running_node
from tui.cli.watch import Watch

HERE = Path(__file__).parents[2]
NEXT = "9.9.9"


def edited(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def macluster(home: Home, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "macluster", "--home", str(home.root), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=2 * START_S, check=False)


async def test_a_node_is_updated_under_its_feet_and_restarted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = tmp_path / "installed"
    for part in ("core", "tui"):
        shutil.copytree(HERE / part, tree / part, ignore=shutil.ignore_patterns("commit", "__pycache__"))
    shutil.copy(HERE / "macluster.py", tree)
    monkeypatch.setenv("PYTHONPATH", str(tree))
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    home = Home(tmp_path / "lab")
    async with running_node(home, "--no-multicast", "--key", "file", has_worker=True) as watch:
        assert watch.now.version == RELEASE
        await watch.until(lambda w: w.now.peers[0].worker_pid is not None, START_S, "the worker")
        edited(tree / "core" / "version.py", f'RELEASE: Final = "{RELEASE}"', f'RELEASE: Final = "{NEXT}"')
        edited(tree / "tui" / "client.py", '"/v1/disks"', '"/v1/disks-of-the-future"')

        said = macluster(home, "status").stderr
        assert said == f"macluster: The node runs {RELEASE}, this is {NEXT}: `macluster restart`.\n"

        os.kill(watch.now.peers[0].worker_pid or 0, signal.SIGKILL)
        refused = f"macluster {NEXT} is installed, the node runs {RELEASE}: `macluster restart`."
        await watch.until(lambda w: any(refused in line.text for line in w.now.logs), START_S, "the refusal")

        restarted = json.loads(macluster(home, "restart", "--json").stdout)
        assert (restarted["was"], restarted["version"]) == (RELEASE, NEXT)
        async with Watch(home) as after:
            await after.attached(START_S)
            assert (after.now.version, after.now.peers[0].name) == (NEXT, home.root.name), "with the options it had"
            await after.until(lambda w: w.now.peers[0].worker_pid is not None, START_S, "the worker")
