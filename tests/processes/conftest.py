from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import Make
from tests.support.maker import make_model


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Makes a tiny model once per session: `made("llama", bits=4)` returns its directory."""
    root = tmp_path_factory.mktemp("models")

    def make(family: str, **options: Any) -> Path:
        name = "-".join([family, *(f"{k}{v}" for k, v in sorted(options.items()))])
        directory = root / name
        if not directory.exists():
            make_model(directory, family, **options)
        return directory

    return make
