"""No question to the operating system ends a node, whatever comes back."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import psutil
import pytest

from core.errors import NodeError
from core.mac.chip import chip_name, computer_name
from core.mac.firewall import firewall
from core.mac.prevent_sleep import SleepPreventer, awake_by
from core.mac.rdma import look, why_not
from core.mac.requirements import this_machine
from core.models.files.sandbox import Job, run_child
from core.node import service
from core.node.answers.tokenizer_process import TokenizerProcess
from core.node.base import tasks as tasks_module
from core.node.config import NodeConfig
from core.node.ring import worker_supervisor
from core.node.ring.worker_supervisor import Supervisor
from core.node.service import Node
from core.node.trust.roster_enforcement import RosterEnforcement
from core.settings import GB
from tests.support.nodes import HOST, paired_home
from tests.support.waiting import until

Question = Callable[..., object]
NO_PROCESS = BlockingIOError(35, "Resource temporarily unavailable")


def nothing(*_: object, **__: object) -> None:
    return None


def error(*_: object, **__: object) -> NoReturn:
    raise OSError(6, "Device not configured")


def hangs(*_: object, **__: object) -> NoReturn:
    raise subprocess.TimeoutExpired("scutil", 5)


ANSWERS = [pytest.param(error, id="an error"), pytest.param(hangs, id="no end"), pytest.param(nothing, id="nothing")]


@pytest.mark.parametrize("answer", ANSWERS)
async def test_a_node_goes_on_whatever_its_system_answers(
    answer: Question, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    monkeypatch.setattr(service, "LOOK_S", 0.001)
    monkeypatch.setattr(tasks_module, "RESTART_S", (0.0,))
    monkeypatch.setattr(Supervisor, "_started", error)
    monkeypatch.setattr(worker_supervisor, "BACK_OFF_S", (0.0,))

    def enforce(_: RosterEnforcement) -> None:
        nonlocal looks
        looks += 1

    monkeypatch.setattr(RosterEnforcement, "enforce", enforce)
    home = paired_home(tmp_path, 0)
    node = Node(NodeConfig(home=home, name="mac", host=HOST, port=0, budget_bytes=GB, multicast=False, awake="always"))
    node.parts.awake = SleepPreventer(1, ("/bin/sh",))  # caffeinate is only on a Mac
    for module, question in (
        (psutil, "virtual_memory"),
        (psutil, "net_if_addrs"),
        (psutil, "net_if_stats"),
        (shutil, "disk_usage"),
        (subprocess, "Popen"),
    ):
        monkeypatch.setattr(module, question, answer)
    async with asyncio.timeout(60):
        run = asyncio.create_task(node.run())
        await until(lambda: looks > 50 or run.done())
        assert not run.done(), node.parts.node.tasks.failure
        node.stop()
        await run
    assert "The worker can't be started: Device not configured." in home.log.read_text()


@pytest.mark.parametrize(
    "answer",
    [*ANSWERS[:2], pytest.param(lambda *_, **__: subprocess.CompletedProcess((), 1), id="no text")],
)
def test_what_a_command_of_macos_cannot_say_is_unknown(answer: Question, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(subprocess, "run", answer)
    assert chip_name()
    assert computer_name()
    assert firewall() == "unknown"
    assert awake_by() == frozenset()
    assert why_not(look())
    assert this_machine().translated == ""


def test_a_model_is_not_examined_where_no_process_can_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> NoReturn:
        raise NO_PROCESS

    monkeypatch.setattr(subprocess, "Popen", refused)
    job = Job(module="core.models.text", subject="Examining it", fix="", seconds=1, rss_bytes=1)
    with pytest.raises(NodeError, match="Examining it can't start: Resource temporarily unavailable"):
        run_child(job)


@pytest.mark.parametrize("refused", [NO_PROCESS, RuntimeError("can't start new thread")])
async def test_a_tokenizer_that_the_system_cannot_start_says_why(
    refused: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start(*_: object, **__: object) -> NoReturn:
        raise refused

    monkeypatch.setattr(asyncio.get_running_loop(), "subprocess_exec", start)
    with pytest.raises(NodeError, match=f"The tokenizer of made can't start: {refused.args[-1]}"):
        await TokenizerProcess.start(tmp_path / "made")
