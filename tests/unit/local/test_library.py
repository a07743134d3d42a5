"""`import macluster`, the entry point of library users."""

from __future__ import annotations

import subprocess
import sys

import pytest

import macluster


@pytest.mark.slow
def test_importing_it_imports_no_mlx_until_a_name_is_used() -> None:
    lines = """
import sys, macluster
assert sorted(dir(macluster)) == sorted(macluster.__all__)
assert not {"mlx", "mlx_lm", "core"} & set(sys.modules)
assert callable(macluster.local_ring) and callable(macluster.RingModel)
assert "mlx.core" in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_name_that_it_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'ring'"):
        macluster.__getattr__("ring")


def test_as_a_program_it_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "macluster", "--version"], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("macluster ")
