"""Models stay out of Time Machine's backups, by a stand-in for its command."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.mac import time_machine
from core.node.disks.copy_checks import folder_to_fill


def test_the_folder_of_models_is_excluded_when_a_model_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command, models = tmp_path / "tmutil", tmp_path / "models"
    command.write_text(f'#!/bin/sh\nprintf "%s " "$@" >> {tmp_path}/asked\n')
    command.chmod(0o700)
    monkeypatch.setattr(time_machine, "TMUTIL", str(command))
    folder_to_fill(models, {}, "f" * 64, {})
    assert (tmp_path / "asked").read_text() == f"addexclusion {models} "
    monkeypatch.setattr(time_machine, "TMUTIL", str(tmp_path / "none"))
    folder_to_fill(models, {}, "f" * 64, {})
