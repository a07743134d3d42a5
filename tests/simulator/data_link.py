"""A data link between two workers, bound to one plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core.events import Plan
from tests.simulator.network import Network, Way, Wire

if TYPE_CHECKING:
    from tests.simulator.worker import Worker


class Link:
    """`is_over`: one end has closed it."""

    def __init__(self, network: Network, source: Worker, target: Worker, plan: Plan) -> None:
        self.source, self.target, self.plan = source, target, plan
        way = Way((source.device_id, target.device_id, "data"))
        self._forward, self._backward = Wire(network, way, target.process), Wire(network, way, source.process)
        self.is_over = False

    def dial(self) -> None:
        self._forward.send(self.target.knocked, self)

    def answer(self, is_welcome: bool) -> None:
        self._backward.send(self.source.welcomed if is_welcome else self.source.refused, self)

    def send(self, item: Any) -> None:
        self._forward.send(self.target.came, self, item)

    def close(self, by: Worker) -> None:
        """Close the link; the other end sees it after all frames sent before."""
        self.is_over = True
        wire, other = (self._forward, self.target) if by is self.source else (self._backward, self.source)
        wire.send(other.ended, self)
