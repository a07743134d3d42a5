"""Models arrive on the disks of Macs: from the hub, with an interruption in the middle, and from each other."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from core.errors import Busy, UsageError
from core.events import ModelsChanged, Transfer
from core.requests.disks import CopyRequest, DownloadRequest, TransferOrder, TrimRequest
from core.requests.plans import LoadRequest, ModelChoice
from tests.support.cluster import Make, begin, bytes_below, fetched, finish, reference, running_demo
from tests.support.command import macluster
from tests.support.hub import PIECE, Hub, running_hub
from tui.cli.demo import Demo
from tui.cli.load import loaded
from tui.cli.watch import Watch

WAIT_S = 120.0
PROMPT = "a hop is"
LONG = 120


def transfers(watch: Watch, mark: int = 0) -> list[Transfer]:
    return [event for event in watch.seen[mark:] if isinstance(event, Transfer)]


async def ended(watch: Watch, mark: int) -> Transfer:
    await watch.until(lambda w: any(t.is_over for t in transfers(w, mark)), WAIT_S, "The transfer")
    return next(t for t in transfers(watch, mark) if t.is_over)


async def changed(watch: Watch, order: TransferOrder) -> None:
    """Wait until the condition holds."""
    mark = len(watch.seen)
    await watch.client.change_transfers(order)
    states = ("running",) if order.what == "resume" else ("paused",)
    await watch.until(lambda w: any(t.state in states for t in transfers(w, mark)), WAIT_S, order.what)


async def load(demo: Demo, model: str, layers: tuple[str, ...] = ()) -> None:
    await loaded(demo.head, LoadRequest(model=model, layers=layers))


async def listed(watch: Watch, name: str) -> ModelChoice:
    """Wait until the node lists the model; returns its entry."""
    mark = 0
    while not (found := [c for c in await watch.client.models() if c.name == name and c.layers]):
        await watch.until(lambda w: ModelsChanged() in w.seen[mark:], WAIT_S, name)  # noqa: B023
        mark = len(watch.seen)
    return found[0]


@pytest.mark.promise("P27")
async def test_models_come_to_the_disks_where_they_are_missing(made: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    repo, solo = made("qwen3"), made("llama", layers=6)
    (repo / "modeling.py").write_text("raise SystemExit")
    async with running_hub(repo, "acme/toy") as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        async with running_demo(made("llama"), (64, 32), load=None) as demo:
            own, other = (next(p.device_id for p in w.now.peers if p.is_self) for w in demo.watches)
            await copied(demo, solo, own, other)
            await downloaded(demo, hub, own, other)


async def copied(demo: Demo, solo: Path, own: str, other: str) -> None:
    head, mbp = demo.watches
    shutil.copytree(solo, demo.home.models / "solo")
    there = await listed(mbp, "solo")
    assert (there.path, there.held_by, there.preview.plan) == ("", (own,), None)
    here = await listed(head, "solo")
    assert (here.held_by, here.preview.missing_on) == ((own,), (other,))
    await load(demo, "solo")
    first = fetched(demo)[other]
    assert 0 < first < here.total_bytes, "only its own layers came"
    await head.until(lambda w: all(peer.worker_pid for peer in w.now.peers), WAIT_S, "Word of each worker")
    said = json.loads((await macluster(demo.home.root, "status", "--json")).stdout)
    mine, its = ((w["fetched_bytes"], w["disk_bytes"]) for w in said["workers"])
    assert mine[0] == 0 < here.total_bytes <= mine[1]
    assert (its[0], its[1] < mine[1]) == (first, True)
    (stage,) = (await listed(mbp, "solo")).layers_here
    assert 2 < stage[0] <= 4 < stage[1] == 6
    here = await listed(head, "solo")
    assert (here.held_by, here.preview.missing_on) == ((own,), ())
    assert [disk.layers for disk in here.preview.disks] == [((0, 6),), (stage,)]
    mark = len(head.seen)
    await load(demo, "solo", layers=("0:1", "2:5"))
    assert (await listed(mbp, "solo")).layers_here == ((2, 6),)
    assert 0 < fetched(demo, mark)[other] < first, "only what the other split moves"
    await load(demo, "solo", layers=("0:3", "4:5"))
    (extra,) = await mbp.client.trim(TrimRequest())
    assert (extra.name, extra.layers, extra.kept, extra.only_here) == ("solo", ((2, 4),), ((4, 6),), ())
    took = bytes_below(demo._home(1).models)
    assert await mbp.client.trim(TrimRequest(model="solo", go=True)) == [extra]
    assert (await listed(mbp, "solo")).layers_here == ((4, 6),)
    assert took - bytes_below(demo._home(1).models) >= extra.nbytes * 0.9
    assert await mbp.client.trim(TrimRequest()) == []
    with pytest.raises(UsageError, match="macluster did not write"):
        await head.client.trim(TrimRequest(model="solo", go=True))
    (expected,) = reference(solo, [PROMPT], LONG)
    running, mark = await begin(head, PROMPT, LONG), len(head.seen)
    await head.client.copy(CopyRequest(fingerprint=here.fingerprint, to=(other,)))
    assert (await ended(head, mark)).state == "done"
    assert {t.mac for t in transfers(head, mark)} == {other}
    assert (await finish(head, running)).tokens == expected, "an answer of a part goes on while the rest comes"
    assert (await listed(mbp, "solo")).layers_here == ()
    assert (await listed(head, "solo")).held_by == (own, other)


async def downloaded(demo: Demo, hub: Hub, own: str, other: str) -> None:
    head, wish = demo.head, DownloadRequest(repo=hub.repo)
    hub.slow_s = 0.4
    mark = len(head.seen)
    await head.client.download(wish)
    await head.until(lambda w: any(t.done > PIECE or t.is_over for t in transfers(w, mark)), WAIT_S, "The download")
    assert [(t.mac, t.problem) for t in transfers(head, mark)[-1:]] == [(own, None)]
    with pytest.raises(Busy):
        await head.client.download(wish)
    await changed(head, TransferOrder(what="pause"))
    assert head.now.transfers[0].done > PIECE
    await changed(head, TransferOrder(what="limit", bytes_per_s=PIECE))
    hub.slow_s = 0.0
    await changed(head, TransferOrder(what="resume"))
    going_on = transfers(head, mark)[-1]
    assert (going_on.limit_bytes_per_s, going_on.is_over) == (PIECE, False), "what is left would be there at once"
    await head.client.change_transfers(TransferOrder(what="stop"))
    assert (await ended(head, mark)).state == "stopped"
    assert head.now.transfers == ()
    mark = len(head.seen)
    await head.client.download(wish)
    last = await ended(head, mark)
    assert (last.state, last.problem) == ("done", None)
    assert hub.ranges, "it went on where it was stopped"
    assert (await listed(head, hub.repo)).preview.missing_on == (other,)
    assert not list(demo.home.models.rglob("*.py")), "nothing that can run code"
    mark = len(head.seen)
    await head.client.download(DownloadRequest(repo="acme/none"))
    problem = (await ended(head, mark)).problem
    assert problem
    assert "no model acme/none" in problem.what
