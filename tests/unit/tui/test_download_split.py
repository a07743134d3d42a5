"""`macluster download --split` ends, with words, when there is nothing to share out."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from core.errors import TransferError
from core.events import Snapshot, Transfer
from core.requests.disks import DownloadRequest
from core.requests.plans import ModelChoice
from tests.unit.tui.test_disks import NOW, PRINT, choice
from tui.cli.transfers import _download_split


class Watching:
    """A watch of a node whose download of the settings ends at once; a longer wait fails."""

    def __init__(self, listed: list[ModelChoice]) -> None:
        self.now: Snapshot = NOW
        self.seen: list[Transfer] = []
        self.client = self
        self._listed = listed

    async def download(self, request: DownloadRequest) -> None:
        assert request.split
        self.seen.append(Transfer(model=request.repo, fingerprint=PRINT, mac="A", state="done"))

    async def models(self) -> list[ModelChoice]:
        return self._listed

    async def until(self, reached: Callable[[Any], bool], timeout_s: float, what: str) -> None:
        pytest.fail("it waits for an event that never comes")


async def split(*listed: ModelChoice) -> None:
    watch: Any = Watching(list(listed))
    args = argparse.Namespace(limit=0, json=False)
    await _download_split(watch, args, DownloadRequest(repo="acme/toy", revision="main"))


async def test_a_model_that_is_whole_everywhere_needs_no_split(capsys: pytest.CaptureFixture[str]) -> None:
    await split(choice("ABC"))
    assert "Every Mac already has all of acme/toy" in capsys.readouterr().out


async def test_a_model_that_cannot_be_used_after_all_is_no_traceback() -> None:
    with pytest.raises(TransferError, match="can't be used here"):
        await split(msgspec.structs.replace(choice(""), fingerprint=""))
