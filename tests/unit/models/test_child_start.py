"""A child that can't start is a fault of this installation, and no model is blamed for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.demo import DEMO_MODEL
from core.errors import NodeError
from core.models.files.child_start import ChildStart
from core.models.files.ready_child import ReadyChild
from core.models.files.sandbox import Job, run_child
from core.node.answers.tokenizer_process import TokenizerProcess

MISSING = "core.models.files.no_such_module"
JOB = Job(module=MISSING, subject="The model", fix="Choose another model.", seconds=30.0, rss_bytes=1 << 30)
LAST_WORDS = "No module named core.models.files.no_such_module"


def test_a_child_of_one_job_that_cannot_start_gives_its_last_words() -> None:
    with pytest.raises(NodeError, match=LAST_WORDS) as caught:
        run_child(JOB)
    assert "install macluster again" in caught.value.fix


def test_so_does_a_child_that_does_one_job_after_the_other() -> None:
    with pytest.raises(NodeError, match=LAST_WORDS):
        ReadyChild(MISSING).run(JOB, b"")


async def test_so_does_the_process_of_a_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.node.answers.tokenizer_process.ChildStart", lambda _: ChildStart(MISSING))
    with pytest.raises(NodeError, match=LAST_WORDS):
        await TokenizerProcess.start(Path(DEMO_MODEL))
