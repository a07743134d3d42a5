"""A headless demo on a Mac that Linux plays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


def why_not(folder: Path) -> str:
    """Why no fake Mac can be made here; "" if it can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "needs root on Linux"
    tried = subprocess.run(
        ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", str(folder)], capture_output=True, check=False
    )
    return "needs mount namespaces" if tried.returncode else ""


@pytest.mark.nightly
def test_a_demo_answers_on_a_mac_and_keeps_nothing_in_its_keychain(tmp_path: Path) -> None:
    if missing := why_not(tmp_path):
        pytest.skip(missing)
    program = Path(sys.executable).parent / "macluster"
    command = ["unshare", "-m", "sh", str(FOLDER / "mac.sh"), str(program), "demo", "--prompt", "Hi", "--no-multicast"]
    left_out = ("PYTHON_KEYRING_BACKEND", "PYTHONPATH")
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    ran = subprocess.run(
        command,
        env={**environment, "FAKE_MAC": str(tmp_path), "HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "3 Mac(s), paired; loaded" in ran.stdout
    assert "finish: stop" in ran.stdout
    assert "defect" not in ran.stderr
