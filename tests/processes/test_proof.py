"""A load is proved, or refused with a message that names the Mac, the file and the cure; nothing of it stays."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlx_lm
import pytest
import pytest_asyncio

from core.errors import MaclusterError, NodeError
from core.events import PlanLoaded, PlanProposed
from core.models.files.manifest import Manifests
from core.models.files.safetensors import INDEX_NAME
from core.requests.plans import LoadRequest
from core.settings import Home
from core.worker.messages import LinkBroken, Prove, Proved, Unproved
from tests.conftest import our_children
from tests.support.cluster import Make, ask, reference
from tests.support.wires import wire
from tests.support.worker_ring import LINK_S, WorkerRing, worker_ring
from tui.cli.demo import Demo, DemoConfig
from tui.cli.watch import Watch

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

WEIGHT = "model.layers.7.mlp.down_proj.weight"
NAMES = ("studio", "mbp")
LOAD_S = 120.0
TRIES = 5


class Apart(Demo):
    """Macs with a model folder each; mlx-lm of the second one computes one family otherwise."""

    def __init__(self, folders: Path) -> None:
        super().__init__(DemoConfig(budgets_gb=(64, 32), multicast=False, has_spare=False), print)
        self._folders = folders

    def _launch(self, index: int, model: Path, peers: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        with pytest.MonkeyPatch.context() as changed:
            if index:
                changed.setenv("PYTHONPATH", str(self._folders / "other"))
            return super()._launch(index, self._folders / NAMES[index], peers)


def edit_mlx_lm(folder: Path) -> None:
    """Copy mlx-lm, of the same version, with another scale of the attention of Qwen 3."""
    shutil.copytree(Path(mlx_lm.__file__).parent, folder / "mlx_lm", ignore=shutil.ignore_patterns("__pycache__"))
    family = folder / "mlx_lm" / "models" / "qwen3.py"
    text = family.read_text()
    assert "self.scale = head_dim**-0.5" in text
    family.write_text(text.replace("self.scale = head_dim**-0.5", "self.scale = head_dim**-0.4"))


class Macs:
    """A running cluster, and its model folders."""

    def __init__(self, demo: Demo, folders: Path, model: Path) -> None:
        self.demo = demo
        self._folders = folders
        self.model = model

    def copy(self, name: str, model: Path | None = None) -> dict[str, Path]:
        """Copy the model under a new name on every Mac, with its own fingerprint."""
        copies = {mac: self._folders / mac / name for mac in NAMES}
        for copy in copies.values():
            shutil.copytree(model or self.model, copy)
            edit_config(copy, comment=name)
        return copies

    async def load(self, name: str, *, verify: bool = False) -> PlanLoaded:
        """Load a model over all Macs; repeats a load that a busy machine made without one of them.

        Raises the problem that stopped it.
        """
        for _ in range(TRIES):
            loaded = await self._load(name, verify=verify)
            plan = self.demo.head.now.plan
            if plan and len(plan.stages) == len(NAMES):
                return loaded
        raise AssertionError("it was loaded without a Mac each time")

    async def _load(self, name: str, *, verify: bool) -> PlanLoaded:
        head = self.demo.head
        await head.until(_all_connected, LOAD_S, "Linking")  # a busy machine may have lost one
        mark = len(head.seen)
        await head.client.load(LoadRequest(model=name, verify=verify))

        def decided(_: object) -> bool:
            begun = any(isinstance(e, PlanProposed) for e in head.seen[mark:])
            return begun and head.now.plan_status in ("ready", "broken")

        await head.until(decided, LOAD_S, "Loading")
        if head.now.plan_problem:
            raise NodeError(head.now.plan_problem.what, head.now.plan_problem.fix)
        return next(e for e in reversed(head.seen) if isinstance(e, PlanLoaded))


def _all_connected(watch: Watch) -> bool:
    return sum(p.state == "connected" and p.budget_bytes > 0 for p in watch.now.peers) == len(NAMES)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def macs(made: Make, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Macs]:
    folders, model = tmp_path_factory.mktemp("apart"), made("llama")
    for name in NAMES:
        (folders / name).mkdir()
    edit_mlx_lm(folders / "other")
    demo = Apart(folders)
    running = Macs(demo, folders, model)
    running.copy("good")
    rot(running.copy("rotten")["mbp"], Home(demo.home.root.parent / "mbp").hashes)
    try:
        await demo.start()
        await demo.join()
        yield running
    finally:
        await demo.stop()


def edit_config(model: Path, **changes: Any) -> None:
    file = model / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def shard_of(model: Path, tensor: str) -> Path:
    """The file with that tensor."""
    return model / str(json.loads((model / INDEX_NAME).read_text())["weight_map"][tensor])


def place_of(shard: Path, tensor: str) -> int:
    """The offset of a tensor's bytes."""
    raw = shard.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    return 8 + length + int(json.loads(raw[8 : 8 + length])[tensor]["data_offsets"][0])


def change_byte(shard: Path, at: int, change: Callable[[int], int]) -> None:
    """Change one byte in place; the file keeps its length and modification time."""
    before = shard.stat()
    with shard.open("r+b") as file:
        file.seek(at)
        (old,) = file.read(1)
        file.seek(at)
        file.write(bytes([change(old)]))
    os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns))


def rot(model: Path, hashes: Path) -> None:
    """Flip the sign bit of one weight of the last layer on disk, as a bad disk does without a write.

    The node that keeps its file hashes in `hashes` must not have started yet.
    """
    hashes.parent.mkdir(mode=0o700, parents=True)
    Manifests(hashes).of(model)
    shard = shard_of(model, WEIGHT)
    before = shard.stat().st_ctime_ns
    change_byte(shard, place_of(shard, WEIGHT) + 3, lambda byte: byte ^ 0x80)
    hashes.write_text(hashes.read_text().replace(str(before), str(shard.stat().st_ctime_ns)))


def flip(model: Path) -> None:
    shard = model / "model-00002-of-00003.safetensors"
    change_byte(shard, shard.stat().st_size - 1, lambda byte: byte ^ 1)


def truncate(model: Path) -> None:
    shard = model / "model-00002-of-00003.safetensors"
    os.truncate(shard, shard.stat().st_size - 100)


def drop(model: Path) -> None:
    (model / "model-00002-of-00003.safetensors").unlink()


def estrange(model: Path) -> None:
    edit_config(model, model_type="nonesuch")


def replace(model: Path) -> None:
    edit_config(model, rope_theta=5000.0)


async def lets_go(macs: Macs) -> None:
    """Check that the refused load is gone everywhere: each Mac has one worker again."""
    await macs.demo.head.client.unload()
    await until(lambda: len(our_children()) == 4)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (flip, "model-00002-of-00003.safetensors of flip on mbp is not the same file as on studio."),
        pytest.param(truncate, "mbp: model-00002-of-00003.safetensors is cut short", marks=pytest.mark.nightly),
        (drop, "mbp: model-00002-of-00003.safetensors is missing in drop."),
        pytest.param(estrange, "'nonesuch'", marks=pytest.mark.nightly),
        pytest.param(replace, "mbp: replace on this Mac is", marks=pytest.mark.nightly),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
@pytest.mark.promise("T15")
async def test_a_copy_that_differs_on_one_mac_is_refused(macs: Macs, damage: Callable[[Path], None], said: str) -> None:
    damage(macs.copy(damage.__name__)["mbp"])
    with pytest.raises(MaclusterError) as refused:
        await macs.load(damage.__name__)
    assert "mbp" in refused.value.what
    assert said in refused.value.what
    assert refused.value.fix
    await lets_go(macs)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        pytest.param(flip, "is not the same file as on studio.", marks=pytest.mark.nightly),
        (truncate, "model-00002-of-00003.safetensors is cut short"),
        (drop, "model-00002-of-00003.safetensors is missing"),
        (estrange, "'nonesuch'"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
async def test_damage_on_the_head_is_refused(macs: Macs, damage: Callable[[Path], None], said: str) -> None:
    model = macs.copy(f"head-{damage.__name__}")["studio"]
    damage(model)
    with pytest.raises(MaclusterError) as refused:
        await macs.load(str(model))
    assert said in refused.value.what
    assert refused.value.fix
    await lets_go(macs)


async def test_weights_that_are_no_numbers_on_every_mac_fail_the_proof(macs: Macs) -> None:
    for model in macs.copy("void").values():
        shard = shard_of(model, WEIGHT)
        at = place_of(shard, WEIGHT)
        change_byte(shard, at + 2, lambda _: 0xC0)
        change_byte(shard, at + 3, lambda _: 0x7F)
    with pytest.raises(MaclusterError, match="not numbers") as refused:
        await macs.load("void")
    assert "choose another version" in refused.value.fix


async def test_unloading_while_the_whole_model_is_read_ends_it_and_the_next_load_is_proved_against_it_and_answers(
    macs: Macs,
) -> None:
    """Also after a bad model."""
    (expected,) = reference(macs.model, ["a hop is"], 8)
    references, said = macs.demo.home.references, "Proved against mlx_lm with 24 tokens: the same logits as on one Mac"
    loading = asyncio.create_task(macs.load("good", verify=True))
    await macs.demo.head.until(lambda watch: watch.now.plan_status == "loading", LOAD_S, "Loading")
    await macs.demo.head.client.unload()
    loading.cancel()
    await asyncio.gather(loading, return_exceptions=True)
    assert (await macs.load("good")).proof.startswith(said)
    kept = max(references.iterdir(), key=os.path.getmtime)
    made = kept.stat()
    assert (await macs.load("good")).proof.startswith(said)
    assert kept.stat().st_ino == made.st_ino, "they were made once"
    assert (await macs.load("good", verify=True)).proof.startswith(said)
    assert kept.stat().st_ino != made.st_ino
    assert (await ask(macs.demo.head, "a hop is", 8)).tokens == expected


async def test_a_bit_that_checksums_took_for_unchanged_is_found(macs: Macs) -> None:
    with pytest.raises(MaclusterError, match="not those of the whole model") as refused:
        await macs.load("rotten")
    assert "download the model again" in refused.value.fix


async def test_a_mac_whose_mlx_lm_computes_otherwise_is_refused_though_its_version_is_the_same(
    macs: Macs, made: Make
) -> None:
    macs.copy("skewed", made("qwen3"))
    with pytest.raises(MaclusterError, match="not those of the whole model") as refused:
        await macs.load("skewed")
    versions = f"studio (mlx-lm {version('mlx-lm')}), mbp (mlx-lm {version('mlx-lm')})"
    assert f"Computed by {versions}." in refused.value.what
    assert "mlx-lm on every Mac" in refused.value.fix


async def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LOAD_S
    while not reached():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


# ---- a ring of bare workers


def proof_of(ring: WorkerRing) -> Proved | Unproved | LinkBroken:
    """The head's report of a proof."""
    ring.workers[0].send(Prove(plan_gen=ring.plan.plan_gen))
    while True:
        report = ring.workers[0].next(LINK_S).report
        if isinstance(report, Proved | Unproved | LinkBroken):
            return report


async def test_a_proof_that_is_cut_short_is_given_anew_over_the_next_links_and_leaves_nothing_on_any_stage(
    macs: Macs,
) -> None:
    """The next proof, and requests, find the stages unchanged."""
    with wire(lambda number: "repeat" if number == 7 else "pass") as bad:

        def reroute(stage: int, port: int) -> int:
            return bad.before(port) if stage == 1 else port

        with worker_ring(macs.model, (4,), reroute=reroute) as ring:
            assert isinstance(proof_of(ring), LinkBroken)
            assert bad.faults == 1
            ring.relink()
            assert isinstance(proof_of(ring), Proved)
            assert isinstance(proof_of(ring), Proved)
            first, second = (ring.generate([1, 2, 3], max_tokens=4) for _ in range(2))
    assert second.tokens == first.tokens
    counts = [(one.frames, two.frames) for one, two in zip(first.samples, second.samples, strict=True)]
    assert all(two < 2 * one for one, two in counts), "counted from an idle ring on; telemetry is by the clock"
