"""Three Macs fetch their own slices of a model from the hub, and a download is killed again and again."""

from __future__ import annotations

import asyncio
import os
import random
import re
import shutil
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from core.errors import NodeError
from core.events import ModelsChanged, PlanLoaded, StageState, Transfer
from core.models.files.block_map import BLOCK_BYTES, BlockMap, read_map, whole_parts
from core.models.files.compared_hashes import COMPARED_NAME, doubtful
from core.models.files.hub_download_messages import AnyOrder, BeginOrder, Fetched, PartsOrder
from core.models.files.hub_download_parts import RANGE_BLOCKS
from core.models.files.hub_origin import HubOrigin
from core.models.files.hub_reader import CONNECTIONS
from core.models.files.model_folder import read_folder
from core.node.disks.model_copies import Origin, in_order
from core.pipe_messages import pack, read_message
from core.requests.disks import CopyRequest, DownloadRequest
from core.requests.plans import LoadRequest, ModelChoice, PreviewRequest
from tests.support.cluster import Make, ask, begin, fetched, finish, reference, running_demo
from tests.support.copies import Pair, pair
from tests.support.hub import COMMIT, Hub, running_hub
from tests.support.search import SEARCH
from tests.support.waiting import until
from tui.cli.demo import Demo
from tui.cli.load import loaded
from tui.cli.watch import Watch

__all__ = ["pair"]  # fixtures

REPO = "acme/toy"
PROMPT = "a hop is"
LONG = 64
WAIT_S = 120.0
KILLS = 2 * SEARCH


def weights(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.glob("*.safetensors")}


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


@pytest.fixture(scope="module")
def repo(made: Make) -> Path:
    return made("llama", layers=6, hidden=384, intermediate=1792)


@pytest.fixture(scope="module")
def expected(repo: Path) -> list[int]:
    return reference(repo, [PROMPT], LONG)[0]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hub(repo: Path) -> AsyncIterator[Hub]:
    with pytest.MonkeyPatch.context() as patch:
        async with running_hub(repo, REPO) as running:
            patch.setenv("HF_ENDPOINT", running.url)
            yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def demo(hub: Hub, made: Make) -> AsyncIterator[Demo]:
    """Three Macs without the model, one test after the other."""
    async with running_demo(made("llama"), (32, 32, 32), load=None) as running:
        yield running


@pytest.mark.promise("P39")
@pytest.mark.asyncio(loop_scope="module")
async def test_three_macs_fetch_each_its_own_slice_and_load_no_byte_that_is_wrong(
    demo: Demo, hub: Hub, repo: Path, expected: list[int]
) -> None:
    (name, tensor, header), *_ = [
        (file, found, header)
        for file, header in read_folder(repo).headers.items()
        for key, found in header.tensors.items()
        if "layers.4.mlp.up_proj" in key
    ]
    hub.flipped = {name: header.nbytes + tensor.begin + tensor.nbytes // 2}
    head = demo.head
    await head.client.download(DownloadRequest(repo=REPO, split=True))
    await head.until(lambda w: any(isinstance(e, Transfer) and e.is_over for e in w.seen), WAIT_S, "Headers")
    assert sum(hub.served.values()) < size_of(repo) / 20, "a few MB tell what a plan needs"
    assert (await toy(head)).layers_here == ()
    preview = await head.client.plan(PreviewRequest(model="toy", parts=True))
    assert preview.plan
    assert preview.forecast
    slices = [sum(end - begin for _, begin, end in parts) for parts in preview.parts]

    mark = len(head.seen)
    with pytest.raises(NodeError, match=f"{re.escape(name)} differs from {REPO} on the hub"):
        await loaded(head, LoadRequest(model="toy"))
    told = {event.status for event in head.seen[mark:] if isinstance(event, StageState)}
    assert told >= {"fetching", "comparing"}
    assert not told & {"loading", "linking", "ready"}, "no worker was told to load it"
    got, running = fetched(demo, mark), [e for e in head.seen[mark:] if isinstance(e, Transfer)]
    by_hub = {e.mac for e in running if not e.source}
    assert by_hub == {stage.device_id for stage in preview.plan.stages}
    for stage, nbytes in zip(preview.plan.stages, slices, strict=True):
        assert nbytes * 0.9 < got[stage.device_id] <= nbytes * 1.05
    assert sum(hub.served.values()) <= size_of(repo) * 1.05
    folders = [Path((await toy(watch)).path) for watch in demo.watches]
    for folder in folders:
        await until(partial(is_thrown_away, folder, name))  # a message informs the other Macs

    hub.flipped, served = {}, sum(hub.served.values())
    demo.model = "toy"
    await demo.load()  # which tries again if a busy machine starved a node
    assert sum(hub.served.values()) - served <= (repo / name).stat().st_size * 1.05, "that file comes again"
    assert (await ask(head, PROMPT, 16)).tokens == expected[:16]
    assert head.now.plan
    assert len(head.now.plan.nowhere_else) == 2
    for folder in folders:
        assert not doubtful(folder).uncompared
        with (folder / COMPARED_NAME).open("rb") as file:
            assert name.encode() in file.readline()


def is_thrown_away(folder: Path, name: str) -> bool:
    there = read_map(folder)
    return there is not None and not there.hashes[name]


@pytest.mark.asyncio(loop_scope="module")
async def test_a_lost_mac_is_replaced_at_once_where_the_others_have_its_layers(
    demo: Demo, hub: Hub, expected: list[int]
) -> None:
    head = demo.head
    fingerprint = (await toy(head)).fingerprint
    macs = {stage.device_id for stage in head.now.plan.stages} if head.now.plan else set()
    await head.client.copy(CopyRequest(fingerprint=fingerprint, to=tuple(macs)))
    count = len(head.seen)
    while {*(await toy(head)).held_by} != macs:
        await head.until(lambda w: ModelsChanged() in w.seen[count:], WAIT_S, "Copies")  # noqa: B023
        count = len(head.seen)
    await head.until(lambda w: not w.now.transfers, WAIT_S, "The end of the copies")
    preview = await head.client.plan(PreviewRequest(model="toy"))
    assert preview.plan
    assert preview.plan.nowhere_else == ()
    running, mark, served = await begin(head, PROMPT, LONG), len(head.seen), sum(hub.served.values())
    os.kill(demo.pid_of(2), signal.SIGKILL)
    assert (await finish(head, running)).tokens == expected
    now = head.now.plan
    assert now
    assert [(stage.start, stage.stop) for stage in now.stages] == [(0, 3), (3, 6)]
    again = next(n for n, event in enumerate(head.seen) if n > mark and isinstance(event, PlanLoaded))
    came = fetched(demo, mark, again)
    assert (sum(came.values()), sum(hub.served.values())) == (0, served), "what they had to load was there"


async def toy(watch: Watch) -> ModelChoice:
    (choice,) = [each for each in await watch.client.models() if each.name == REPO]
    return choice


async def test_the_hub_goes_on_where_a_mac_left_and_comes_first_where_it_was_faster(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = pair.sender.folder / "solo"
    async with running_hub(repo, REPO) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        model = msgspec.structs.replace(pair.model, hub=HubOrigin(repo=REPO, commit=COMMIT))
        pair.sender.lives_for = 3
        await pair.copy(model)
        assert 0 < sum(hub.served.values()) < size_of(repo), "what had come was not fetched again"
        assert weights(pair.asker.folder / "solo") == weights(repo)
        shutil.rmtree(pair.asker.folder / "solo")
        pair.sender.lives_for, asked = 1 << 30, pair.blocks_given
        pair.asker.copying._rates |= {"macs": 1e6, "hub": 2e6}
        await pair.copy(model)
        assert (pair.blocks_given, weights(pair.asker.folder / "solo")) == (asked, weights(repo))


def test_linked_macs_come_first_unless_the_hub_was_faster() -> None:
    ways: tuple[Origin, ...] = ("hub", "macs")
    rates: dict[Origin, float] = {}
    assert in_order(ways, rates) == ["macs", "hub"]
    rates["hub"] = 9e6
    assert in_order(ways, rates) == ["macs", "hub"], "nobody knows how fast the Macs are"
    rates["macs"] = 8e6
    assert in_order(ways, rates) == ["hub", "macs"]
    rates["macs"] = 10e6
    assert in_order(ways, rates) == ["macs", "hub"]


async def run(order: AnyOrder, hub: Hub, killed_after_s: float | None = None) -> list[Fetched]:
    """The reports of a child process that runs `order` and may be killed after a while."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "core.models.files.hub_download"),
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        env={**os.environ, "HF_ENDPOINT": hub.url, "PYTHONSAFEPATH": "1"},
    )
    assert child.stdin
    assert child.stdout
    told: list[Fetched] = []
    try:
        child.stdin.write(pack(order))
        while True:
            told.append(msgspec.msgpack.decode(await read_message(child.stdout), type=Fetched))
            if len(told) == 1 and killed_after_s is not None:
                asyncio.get_running_loop().call_later(killed_after_s, child.kill)
    except asyncio.IncompleteReadError:
        await child.wait()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    return told


def blocks(there: BlockMap) -> set[tuple[str, int]]:
    return {(name, block) for name, known in there.hashes.items() for block in known}


def asked_blocks(hub: Hub) -> set[tuple[str, int]]:
    """The first block of each requested range."""
    return {
        (name, int(wanted.removeprefix("bytes=").split("-")[0]) // BLOCK_BYTES)
        for name, ranges in hub.ranges.items()
        for wanted in ranges
    }


@pytest.mark.slow
async def test_a_download_that_is_killed_loses_at_most_the_ranges_under_way(repo: Path, tmp_path: Path) -> None:
    moments = random.Random(21)
    async with running_hub(repo, REPO) as hub:
        killed = 0
        while killed < KILLS:
            (*_, begun) = await run(BeginOrder(repo=REPO, revision="main", below=str(tmp_path)), hub)
            folder = Path(begun.place)
            there = read_map(folder)
            assert there
            origin = HubOrigin(repo=REPO, commit=COMMIT)
            order = PartsOrder(
                folder=str(folder), files=dict(there.files), origin=origin, parts=whole_parts(there.files)
            )
            hub.slow_s = 0.02
            while killed < KILLS:
                hub.ranges.clear()
                hub.served.clear()
                told = await run(order, hub, moments.uniform(0.0, 1.5))
                now = read_map(folder)
                if now is None:
                    break
                killed += 1
                assert blocks(now) >= blocks(there), "what counted once counts"
                assert not asked_blocks(hub) & blocks(there), "and is not asked for again"
                came = now.there_bytes - there.there_bytes
                assert sum(hub.served.values()) - came <= CONNECTIONS * RANGE_BLOCKS * BLOCK_BYTES
                assert now.there_bytes >= told[-1].done - told[0].done + there.there_bytes, "what was told is there"
                there = now
            hub.slow_s = 0.0
            await run(order, hub)
            assert read_map(folder) is None
            assert weights(folder) == weights(repo)
            shutil.rmtree(folder)
