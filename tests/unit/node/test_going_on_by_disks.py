"""A plan that continues without a Mac prefers Macs that have the bytes, and lists those to fetch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from core.events import Peer
from core.models.files.parts import Ranges
from core.models.slicing.split_profile import SplitProfile
from core.node.base.bus import Bus
from core.node.base.node_message import NodeMessage
from core.node.disks.local_models import LocalModels
from core.node.disks.messages import Holds
from core.node.disks.model_inventory import ModelInventory, held_model
from core.node.ring.planning import Planned, Planning
from core.node.ring.split_profiles import SplitProfiles
from core.node.ring.stage_files import StageFiles
from core.requests.plans import LoadRequest
from core.settings import GB
from tests.support.contexts import context_of
from tests.support.maker import make_model
from tests.support.models import read_entry

LAYERS = 6
RATE = 1_000.0


class Links:
    def __init__(self) -> None:
        self.contacts = {"B": object()}

    async def send(self, device_id: str, message: NodeMessage) -> bool:
        return True


class Macs:
    """A, which leads and has all six layers of a model, and B, which has some of them."""

    def __init__(self, folder: Path) -> None:
        make_model(folder / "models" / "toy", "llama", layers=LAYERS)
        models = LocalModels([folder / "models"], folder / "hashes")
        self.entry = read_entry(folder / "models" / "toy")
        self.inventory = ModelInventory("A", models, Links(), Bus())  # type: ignore[arg-type]
        self.peers = [Peer(device_id=mac, name=mac.lower(), budget_bytes=GB) for mac in "AB"]
        profiles, nothing = SplitProfiles(folder / "profiles"), lambda *_: None
        caches = (read_layout(models, self.entry),) * LAYERS
        profiles._found[self.entry.fingerprint] = SplitProfile(layers=LAYERS, cuts=(1, 2, 3, 4, 5), caches=caches)
        transfers: Any = SimpleNamespace(rates={"B": RATE})
        table: Any = SimpleNamespace(linked=lambda: self.peers, apart=list, rtt=nothing)
        others: Any = SimpleNamespace(last_gen=0, plan=None, curves={}, about=nothing, check=nothing)
        files = StageFiles(self.inventory, profiles, transfers, others)
        self.learns: Callable[[], None] = lambda: None  # what the worker's first report changes
        node = context_of(assessment=others)
        self.planning = Planning(node, profiles, self.inventory, files, table, others, others, self.reported)

    async def reported(self) -> None:
        self.learns()

    async def go_on(self, here: Ranges, *budgets: int) -> Planned:
        """The plan for these layers on B."""
        self.peers = [
            msgspec.structs.replace(peer, budget_bytes=budget)
            for peer, budget in zip(self.peers, budgets or (GB, GB), strict=True)
        ]
        await self.inventory.look()
        held = msgspec.structs.replace(held_model(self.entry), missing_bytes=1, layers_here=here)
        await self.inventory.handle_message("B", Holds(models=(held,)))
        return await self.planning.plan_on(LoadRequest(model="toy", context=64, parallelism="pp"), {"C"})


def read_layout(models: LocalModels, entry: Any) -> Any:
    return models._catalog.layout(Path(entry.path)).caches[0]


@pytest.fixture(scope="module")
def macs(tmp_path_factory: pytest.TempPathFactory) -> Macs:
    return Macs(tmp_path_factory.mktemp("going-on"))


async def test_a_plan_counts_what_the_gpu_may_use_by_the_first_report_of_its_worker(macs: Macs) -> None:
    def learns() -> None:
        macs.peers = [msgspec.structs.replace(peer, budget_bytes=GB // 2) for peer in macs.peers]

    macs.learns = learns
    try:
        planned = await macs.go_on(((0, LAYERS),))
    finally:
        macs.learns = lambda: None
    assert [stage.budget_bytes for stage in planned.plan.stages] == [GB // 2, GB // 2]


def split(planned: Planned) -> list[tuple[int, int]]:
    return [(stage.start, stage.stop) for stage in planned.plan.stages]


async def test_boundaries_are_where_nobody_has_to_fetch_a_layer(macs: Macs) -> None:
    as_planned = await macs.go_on(((0, LAYERS),))
    (_, cut), _ = split(as_planned)
    moved = await macs.go_on(((cut + 1, LAYERS),))
    assert split(moved) == [(0, cut + 1), (cut + 1, LAYERS)]
    assert (moved.words, [lack.nbytes for lack in moved.lacks]) == ("", [0]), "but what stands around its layers"


async def test_a_mac_that_has_nothing_of_it_is_left_out_where_the_others_can_hold_it(macs: Macs) -> None:
    assert split(await macs.go_on(())) == [(0, LAYERS)]


async def test_what_has_to_be_fetched_is_said_with_the_time_that_it_takes(macs: Macs) -> None:
    roomy = await macs.go_on(((0, LAYERS),))
    (_, cut), _ = split(roomy)
    tight = [stage.needed_bytes for stage in roomy.plan.stages]
    planned = await macs.go_on(((cut + 1, LAYERS),), *tight)
    assert split(planned) == [(0, cut), (cut, LAYERS)]
    (lack,) = planned.lacks
    assert (lack.device_id, lack.layers) == ("B", ((cut, cut + 1),))
    assert planned.words.startswith(f"{lack.nbytes / 1e6:.1f} MB (layer {cut}) to b, about ")
    seconds = lack.nbytes / RATE
    told = f"{round(seconds)} s" if seconds < 90 else f"{round(seconds / 60)} min"
    assert planned.words.endswith(told)
