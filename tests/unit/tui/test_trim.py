"""The question of `macluster models trim`, which changes nothing without a yes."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from core.requests.disks import Trimmable, TrimRequest
from tests.support.command import macluster
from tui.cli import models
from tui.client import NodeClient

LAYERS = Trimmable(name="solo", path="/m/solo", nbytes=3_100_000_000, layers=((0, 4), (8, 9)), kept=((4, 8),))
BEGUN = Trimmable(name="acme/toy", path="/m/.partial/x", nbytes=1_200_000)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (LAYERS, "solo: 3.1 GB, layers 0–3 and 8; its last plan needs layers 4–7 here"),
        (BEGUN, "acme/toy: 1.2 MB, an unfinished download"),
        (
            msgspec.structs.replace(LAYERS, kept=(), only_here=((8, 9),)),
            "solo: 3.1 GB, everything here (layers 0–3 and 8); no plan has used it; layer 8 would be on no other "
            "linked Mac",
        ),
        (msgspec.structs.replace(LAYERS, layers=()), "solo: 3.1 GB, data around its layers"),
    ],
)
def test_what_goes_is_said_with_its_reason(found: Trimmable, words: str) -> None:
    assert models.trim_lines([found]) == [words]


@pytest.mark.parametrize(
    ("found", "words", "said", "status", "went"),
    [
        ([LAYERS, BEGUN], (), "There is no terminal to confirm it", 2, [False]),
        ([LAYERS, BEGUN], ("--yes",), "Freed 3.1 GB", 0, [False, True]),
        ([LAYERS], ("--json",), '"freed_bytes":0', 0, [False]),
        ([LAYERS], ("--json", "--yes"), '"freed_bytes":3100000000', 0, [False, True]),
        ([], ("--yes",), "There is nothing to delete", 0, [False]),
    ],
)
async def test_nothing_goes_without_a_yes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    found: list[Trimmable],
    words: tuple[str, ...],
    said: str,
    status: int,
    went: list[bool],
) -> None:
    asked: list[bool] = []

    async def node(_: NodeClient, request: TrimRequest) -> list[Trimmable]:
        asked.append(request.go)
        return found

    monkeypatch.setattr(NodeClient, "trim", node)
    ended = await macluster(tmp_path, "models", "trim", *words)
    assert (ended.returncode, asked) == (status, went)
    assert said in ended.stdout + ended.stderr
