"""Faults of workers, nodes, power, links, memory and trust."""

from __future__ import annotations

from functools import partial

from core.trust.roster.bundle import encode_bundle
from core.trust.roster.format import encode
from tests.simulator.keys import chain, mac, revoking
from tests.simulator.mac import Mac, Node
from tests.simulator.network import Way
from tests.simulator.watching import Watching
from tests.simulator.world import World
from tests.support.macs import signed

SILENCES_S = (0.1, 0.5, 1.0, 1.0, 2.0, 2.0, 3.0, 4.0, 4.0, 6.0, 6.0, 20.0)
RESTORED_S = 0.05
RETURNS_S = (0.3, 1.0, 3.0, 6.0, 12.0)


class Faults:
    """Faults, each counted in the world's `kinds` under its name."""

    def __init__(self, world: World, watching: dict[Mac, Watching]) -> None:
        self._world, self._watching, self._random = world, watching, world.random
        often = (self._crash, self._kill, self._freeze, self._cut, self._reset)
        self._all = (*often, *often, self._power, self._hang_up, self._fail_load, self._roster)

    def strike(self) -> None:
        """Strike with a random fault on a random Mac."""
        fault = self._random.choice(self._all)
        self._world.kinds[fault.__name__] += 1
        fault(self._random.choice(self._world.macs))

    def strike_soon(self) -> None:
        """Sometimes crash a worker while spans come back from a mirror."""
        whims = self._world.kind.whims
        home, after_s = whims.choice(self._world.macs), whims.random() * RESTORED_S
        if home.worker and whims.random() < 0.5:
            self._world.kinds["_crash"] += 1
            home.worker.process.soon(self._crash, home, after=after_s)

    def _crash(self, home: Mac) -> None:
        if home.worker:
            self._world.tell(f"the worker of {home.name} crashes")
            home.worker.die(-11)

    def _kill(self, home: Mac) -> None:
        if home.is_up:
            self._world.tell(f"the node of {home.name} is killed")
            home.kill_node()
            self._return(home)

    def _power(self, home: Mac) -> None:
        if home.is_up:
            self._world.tell(f"{home.name} loses power")
            if home in self._watching:
                self._watching[home].lost_power = True
            home.power_cut()
            self._return(home)

    def _return(self, home: Mac) -> None:
        """Boot the Mac again later; a person's Mac always returns."""
        if home in self._watching or self._random.random() < 0.6:
            self._world.later(self._random.choice(RETURNS_S), partial(self._world.boot, home))

    def _freeze(self, home: Mac) -> None:
        """Stop its worker and mostly its node too, for a while."""
        processes = home.processes()[self._random.choice((0, 0, 1)) :]
        seconds = self._random.choice(SILENCES_S)
        self._world.kinds["slept"] += seconds > 1.0
        self._world.tell(f"{' and '.join(process.name for process in processes)} stop for {seconds} s")
        for process in processes:
            process.stop()
            self._world.later(seconds, process.go_on)

    def _cut(self, home: Mac) -> None:
        """Cut everything between two Macs, or only the control link, or only the data links."""
        other = self._random.choice(self._world.macs)
        if other is home:
            return
        ways = [Way((home.device_id, other.device_id)), Way((home.device_id, other.device_id, "data"))]
        ways = self._random.choice((ways, ways, ways[:1], ways[1:]))
        seconds = self._random.choice(SILENCES_S)
        self._world.tell(f"{home.name} and {other.name} are cut for {seconds} s ({len(ways)})")
        for way in ways:
            self._world.network.cut(way)
            self._world.later(seconds, partial(self._world.network.heal, way))

    def _reset(self, home: Mac) -> None:
        """Break a data link; both ends see it."""
        if home.worker:
            self._world.tell(f"a data link of {home.name} breaks")
            home.worker.process.soon(home.worker.reset)

    def _hang_up(self, home: Mac) -> None:
        """Break a control link; both ends see it."""
        if home.is_up and home.node.mesh.contacts:
            contact = self._random.choice(list(home.node.mesh.contacts.values()))
            self._world.tell(f"a control link of {home.name} breaks")
            home.node.process.soon(home.node.mesh.reset, contact)

    def _fail_load(self, home: Mac) -> None:
        home.fails += self._random.choice((1, 1, 1000))
        self._crash(home)

    def _roster(self, home: Mac) -> None:
        """Revoke a Mac, or send it a second history or an old roster."""
        world, head, size = self._world, self._world.macs[0], len(self._world.macs)
        kind = self._random.choice(("revoke", "revoke", "fork", "rollback"))
        if home is head or not head.is_up or head.store.current != chain(size)[-1]:
            return
        world.tell(f"{kind} {home.name}")
        world.kinds[kind] += 1
        if kind == "revoke":
            head.node.process.spawn(self._revoke, head.node, home)
        elif kind == "rollback" or size > 2:
            told = chain(size)[0]
            if kind == "fork":
                told = signed(chain(size)[-2], mac(0), members=chain(size)[-1].members[:-1])
            head.node.process.soon(head.node.mesh.tell, home.device_id, encode_bundle(told.stand, [encode(told)], []))

    async def _revoke(self, node: Node, home: Mac) -> None:
        if node.worker.led and any(stage.device_id == home.device_id for stage in node.worker.led.stages):
            self._watching[node.home].distrusted.update(node.answers.under_way)
        node.home.store.advance(revoking(len(self._world.macs), home.number))
        await node.enforcement.follow()
