"""Files of a model on the Macs: transfers for a plan, missing bytes, and the Macs a plan can lose."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from core.errors import ModelNotFound
from core.events import Plan
from core.node.base.bus import Bus
from core.node.base.node_message import NodeMessage
from core.node.disks.holdings import Holdings
from core.node.disks.local_models import LocalModels
from core.node.disks.messages import HeldModel, Holds, HoldsRequest
from core.node.disks.model_inventory import ModelInventory
from tests.support.copies import held_model_named
from tests.support.planning import part

ALL = "all"
Here = Mapping[str, str | tuple[tuple[int, int], ...]]
# the head has layers 0–3, b 4–7, c 8–11
PLAN = Plan(
    plan_gen=0,
    model="m",
    fingerprint="a" * 64,
    topology="private",
    layers=12,
    context=9,
    chunk=9,
    stages=(part("a", 0, 4), part("b", 4, 8), part("c", 8, 12)),
    output="A",
)

LATTER = {"B": {4, 5, 6, 7}, "C": {8, 9, 10, 11}}


def holdings(here: Here) -> Holdings:
    return Holdings({mac: model(has) for mac, has in here.items()}, frozenset("ABC"))


def model(has: str | tuple[tuple[int, int], ...]) -> HeldModel:
    known = msgspec.structs.replace(held_model_named("m"), layers=12)
    if isinstance(has, str):
        return known
    return msgspec.structs.replace(known, missing_bytes=12 - sum(b - a for a, b in has) or 1, layers_here=has)


@pytest.mark.parametrize(
    ("here", "missing", "nowhere"),
    [
        pytest.param({"A": ALL, "B": ALL, "C": ALL}, {}, (), id="everybody-has-it"),
        pytest.param({"A": ALL}, LATTER, (), id="only-the-head"),
        pytest.param({"A": ((0, 4),), "B": ((4, 8),), "C": ((8, 12),)}, {}, (), id="each-its-own"),
        pytest.param({"A": ((0, 4),), "B": ((2, 8),), "C": ((6, 10),)}, {"C": {10, 11}}, ((10, 12),), id="none-has"),
        pytest.param({"A": ((0, 4),), "B": ((3, 7),), "C": ((7, 12),)}, {"B": {7}}, (), id="a-boundary-moved"),
        pytest.param(
            {"A": (), "D": ALL}, {m: set(range(n, n + 4)) for n, m in ((0, "A"), (4, "B"), (8, "C"))}, (), id="d"
        ),
        pytest.param({"B": ((0, 1 << 50),)}, {"A": {0, 1, 2, 3}, "C": {8, 9, 10, 11}}, (), id="more-than-there-is"),
    ],
)
def test_each_mac_is_to_be_given_what_it_lacks_of_its_stage(
    here: Here, missing: dict[str, set[int]], nowhere: tuple[tuple[int, int], ...]
) -> None:
    found = holdings(here)
    assert found.missing(PLAN) == missing
    assert found.nowhere(layer for layers in missing.values() for layer in layers) == nowhere
    assert found.whole == tuple(mac for mac, has in here.items() if has == ALL)
    assert set(found.incomplete(PLAN)) == {mac for mac in "ABC" if here.get(mac) != ALL}


def test_of_a_mac_that_has_not_told_all_nothing_is_said() -> None:
    found = Holdings({}, frozenset("A"))
    assert found.missing(PLAN).keys() == {"A"}
    assert [found.layers_of(mac) for mac in "AB"] == [(), None]


def test_who_has_most_is_asked_first() -> None:
    assert holdings({"A": ((0, 2),), "B": ((0, 9),), "C": ALL}).sources == ("C", "B", "A")


@pytest.mark.parametrize(
    ("here", "lost"),
    [
        pytest.param({"A": ALL}, "BC", id="the-head-has-all"),
        pytest.param({"A": ((0, 4),), "B": ((4, 8),), "C": ((8, 12),)}, "", id="each-its-own"),
        pytest.param({"A": ((0, 8),), "B": ((4, 8),), "C": ((8, 12),)}, "B", id="b-is-there-twice"),
        pytest.param({"A": ((0, 4),), "B": (), "C": ((8, 12),), "D": ((4, 8),)}, "B", id="another-mac-has-it"),
        pytest.param({"A": ((0, 4),), "B": ((8, 12),), "C": ()}, "C", id="once-each-has-its-stage"),
        pytest.param({"A": ((0, 4),), "B": ALL, "C": ()}, "C", id="only-one-has-all"),
    ],
)
def test_a_mac_can_be_lost_whose_layers_another_disk_has(here: Here, lost: str) -> None:
    found = holdings(here)
    assert "".join(mac for mac in "BC" if found.can_lose(PLAN, mac)) == lost


def test_what_stands_before_or_behind_all_layers_is_lost_with_its_mac() -> None:
    forward = msgspec.structs.replace(PLAN, topology="forward", output="C")
    assert not holdings({"A": ((0, 12),), "B": (), "C": ()}).can_lose(forward, "C")


async def test_layers_that_no_linked_mac_has_are_named(tmp_path: Path) -> None:
    links = Link()
    inventory = ModelInventory("A", LocalModels([tmp_path], tmp_path / "hashes"), links, Bus())  # type: ignore[arg-type]
    links.inventory = inventory
    await inventory.renew(PLAN)
    for mac, has in (("B", ((4, 8),)), ("C", ((8, 10),))):
        await inventory.handle_message(mac, Holds(models=(model(has),)))
    with pytest.raises(ModelNotFound, match=r"No linked Mac has layers 10–11 of m\."):
        inventory.lacking(PLAN)
    await inventory.handle_message("D", Holds(models=(model(ALL),)))
    assert inventory.lacking(PLAN) == ("B", "C"), "what this Mac loads from may lie outside its folders"
    other = msgspec.structs.replace(model(ALL), fingerprint="b" * 64)
    await inventory.handle_message("C", Holds(models=(other,)))
    assert inventory.lacking(PLAN) == ("B",), "that Mac says itself that it has other files of this name"


class Link:
    """Links to three Macs, which search again on request and find nothing."""

    inventory: ModelInventory

    def __init__(self) -> None:
        self.contacts = {mac: object() for mac in "BCD"}

    async def send(self, device_id: str, message: NodeMessage) -> bool:
        if isinstance(message, HoldsRequest):
            await self.inventory.handle_message(device_id, Holds(models=(), answers=message.number))
        return True
