"""A child that can't start is a fault of this installation, and no model is blamed for it."""

from __future__ import annotations

import sys
from importlib.metadata import packages_distributions, requires
from importlib.util import find_spec
from multiprocessing import Pipe
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from core.demo import DEMO_MODEL
from core.errors import NodeError
from core.models.files.child_start import ChildStart, start_fault, without_secrets
from core.models.files.declared_packages import DECLARED
from core.models.files.ready_child import ReadyChild
from core.models.files.sandbox import Job, run_child
from core.node.answers.tokenizer_process import TokenizerProcess
from core.node.peers import node_check
from tests.benches import mlx_lm_process

MISSING = "core.models.files.no_such_module"
JOB = Job(module=MISSING, subject="The model", fix="Choose another model.", seconds=30.0, rss_bytes=1 << 30)
LAST_WORDS = "No module named core.models.files.no_such_module"


def test_a_child_of_one_job_that_cannot_start_gives_its_last_words() -> None:
    with pytest.raises(NodeError, match=LAST_WORDS) as caught:
        run_child(JOB)
    assert "install macluster again" in caught.value.fix


def test_so_does_a_child_that_does_one_job_after_the_other() -> None:
    with pytest.raises(NodeError, match=LAST_WORDS):
        ReadyChild().run(JOB, b"")


async def test_so_does_the_process_of_a_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.node.answers.tokenizer_process.ChildStart", lambda _: ChildStart(MISSING))
    with pytest.raises(NodeError, match=LAST_WORDS):
        await TokenizerProcess.start(Path(DEMO_MODEL))


OWN = frozenset({"core", "tests", "tui"})
STRANGERS = ("torch", "scipy", "tensorflow", "jax", "sklearn", "pandas")


@pytest.fixture
def strangers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Undeclared packages in the same environment: each prints, and breaks when it is imported."""
    for name in STRANGERS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(
            f"print({name!r})\nimport numpy.random\nraise ValueError({name!r})\n"
        )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.mark.usefixtures("strangers")
async def test_a_child_does_not_see_packages_that_nobody_declared() -> None:
    process = await TokenizerProcess.start(Path(DEMO_MODEL))
    assert process.read.vocab_size > 0
    await process.end()


@pytest.mark.usefixtures("strangers")
def test_nor_does_the_mlx_lm_that_rings_are_compared_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", sys.meta_path.copy())
    assert find_spec("torch")
    seen, mlx_lm = list[object](), ModuleType("mlx_lm")
    mlx_lm.__getattr__ = lambda _: seen.append(find_spec("torch"))  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "mlx_lm", mlx_lm)
    ours, theirs = Pipe()
    ours.close()
    with pytest.raises(EOFError):
        mlx_lm_process._answer("", theirs)
    assert seen
    assert not any(seen)


@pytest.mark.slow
def test_the_declared_packages_are_those_of_the_installed_requirements() -> None:
    declared, to_see = set[str](), {"macluster"}
    while to_see - declared:
        name = (to_see - declared).pop()
        declared.add(name)
        needed = map(Requirement, requires(name) or [])
        to_see |= {canonicalize_name(n.name) for n in needed if n.marker is None or n.marker.evaluate({"extra": ""})}
    imported = {
        module
        for module, packages in packages_distributions().items()
        if module.isidentifier() and declared.intersection(map(canonicalize_name, packages))
    }
    assert imported - OWN - {"macluster", "__pycache__"} <= DECLARED  # Python 3.13 lists the latter as a module
    assert DECLARED.isdisjoint(STRANGERS)


def test_a_child_that_starts_has_no_fault_and_one_that_cannot_start_has_one() -> None:
    assert start_fault("core.models.files.hub_download") is None
    fault = start_fault(MISSING)
    assert fault
    assert LAST_WORDS in fault.what


async def test_the_check_of_a_mac_starts_each_kind_of_child(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []

    def start(module: str, *_: str) -> NodeError | None:
        started.append(module)
        return NodeError("it ends", "install again") if module == "core.worker" else None

    monkeypatch.setattr(node_check, "start_fault", start)
    found = [(finding.state, finding.what) async for finding in node_check.child_findings()]
    assert found == [("bad", "it ends")]
    run = {path.with_suffix("") for path in Path(node_check.__file__).parents[2].rglob("*.py") if starts(path)}
    assert {Path(*module.split(".")).name for module in started} >= {path.name for path in run} - {"__main__"}


def starts(path: Path) -> bool:
    """Whether a module is run as a child that says hello."""
    text = path.read_text()
    return '__name__ == "__main__"' in text and any(word in text for word in ("say_hello()", "answer(", "run_jobs("))


def test_a_worker_gets_no_secret_of_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "OPENAI_API_KEY", "db_password")
    for name in (*secrets, "MLX_SETTING"):
        monkeypatch.setenv(name, "x")
    assert not {*secrets} & without_secrets().keys()
    assert without_secrets().keys() >= {"MLX_SETTING", "PATH"}


def test_a_python_that_was_removed_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.executable", gone := str(tmp_path / "python"))
    fault = start_fault("core.worker")
    assert fault
    assert fault.what == f"A process of macluster (core.worker) can't start: {gone} was removed."
    assert fault.fix == "Install macluster again."
