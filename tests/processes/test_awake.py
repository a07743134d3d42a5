"""A Mac does not fall asleep while it holds a model; a program that records its options replaces caffeinate."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from core.mac.prevent_sleep import SleepPreventer, WhenAwake, stays_awake
from tests.support.attentive import paired_nodes
from tests.support.cluster import Make
from tests.support.waiting import until

SCRIPT = """#!/bin/sh
echo "$@" >> {said}
exec sleep 600
"""


def keepers() -> list[psutil.Process]:
    """The processes that keep this machine awake."""
    return [child for child in psutil.Process().children() if child.name() == "sleep"]


async def test_a_mac_is_awake_while_it_holds_a_model(made: Make, tmp_path: Path) -> None:
    said, program = tmp_path / "said", tmp_path / "caffeinate"
    program.write_text(SCRIPT.format(said=said))
    program.chmod(0o700)
    async with paired_nodes(tmp_path, made("llama"), 1) as ((node,), head):
        node.parts.awake = SleepPreventer(os.getpid(), (str(program),))
        await until(lambda: len(keepers()) == 1)
        await until(lambda: said.exists() and said.read_text() == f"-i -s -w {os.getpid()}\n")
        keepers()[0].kill()
        await until(lambda: said.read_text().count("\n") == 2)
        await head.client.unload()
        await until(lambda: not keepers())


@pytest.mark.parametrize(
    ("when", "in_use", "idle"), [("loaded", True, False), ("always", True, True), ("never", False, False)]
)
def test_its_person_chooses_when(when: WhenAwake, in_use: bool, idle: bool) -> None:
    assert (stays_awake(when, is_in_use=True), stays_awake(when, is_in_use=False)) == (in_use, idle)


def test_without_such_a_program_nothing_happens(tmp_path: Path) -> None:
    SleepPreventer(os.getpid(), (str(tmp_path / "caffeinate"),)).keep(wanted=True)
    assert not keepers()
