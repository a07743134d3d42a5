"""Builds and connects models, their copies and downloads, and stored conversations."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from aiohttp import web

from core.node.base.context import NodeContext
from core.node.base.local_server import BEGUN, route
from core.node.base.message_table import MessageRow, receives
from core.node.base.room import Room
from core.node.disks import messages
from core.node.disks.byte_links import ByteLinks
from core.node.disks.conversations import Conversations
from core.node.disks.hub_comparison import HubComparison
from core.node.disks.local_models import LocalModels
from core.node.disks.model_copies import ModelCopies
from core.node.disks.model_inventory import ModelInventory
from core.node.disks.transfers import Transfers
from core.node.peers.linked_mac import LinkedMacChanged
from core.node.peers.mesh import MacGone
from core.node.peers.room import PeersRoom
from core.requests.conversations import Conversation, ConversationId, SearchText
from core.requests.disks import CopyRequest, DownloadRequest, TransferOrder
from core.settings import hub_cache

_M = TypeVar("_M")


class DisksRoom(Room):
    """Models and conversations on this Mac's disk, and models on the others'."""

    def __init__(self, node: NodeContext, peers: PeersRoom) -> None:
        super().__init__(node)
        config, home, mesh = node.config, node.home, peers.mesh
        self.models = LocalModels([home.models, *config.model_roots], home.hashes, home.catalog)
        self.inventory = ModelInventory(node.own_id, self.models, mesh, node.bus)
        links = ByteLinks(node.identity, node.store.cluster, peers.paths.ways, config.host)
        self.copies = ModelCopies(self.models, mesh, links, home.models, node.tasks)
        hub = hub_cache() if hub_cache() in config.model_roots else home.models
        self.transfers = Transfers(node, self.inventory, self.copies, mesh, hub)
        self.comparison = HubComparison(self.inventory, self.copies, mesh, self.transfers.own, node.journal)
        self.conversations = Conversations(home.conversations, node.identity.secret("conversation"))

    def messages(self) -> Iterable[MessageRow]:
        transfers, copies = self.transfers, self.copies
        models = self._spawned("A message about models", self.inventory.handle_message)
        return (
            receives(messages.Holds, models),
            receives(messages.HoldsRequest, models),
            receives(
                messages.BytesRequest, self._spawned("A link for files", copies.serving.open_port), while_forked=False
            ),
            receives(messages.BytesReady, copies.requests.settle, while_forked=False),
            receives(messages.PeerCopyRequest, transfers.copy_for, while_forked=False),
            receives(messages.CopyChange, transfers.change_for, while_forked=False),
            receives(messages.CopyProgress, transfers.note_progress, while_forked=False),
            receives(
                messages.FalseFile,
                self._spawned("A file that is not the hub's", self.comparison.drop),
                while_forked=False,
            ),
        )

    def _spawned(self, name: str, handle: Callable[[str, _M], Coroutine[Any, Any, None]]) -> Callable[[str, _M], None]:
        """A handler that the link doesn't wait for."""

        def take(device_id: str, message: _M) -> None:
            self.node.tasks.spawn(name, handle(device_id, message))

        return take

    def routes(self) -> Iterable[web.RouteDef]:
        transfers, conversations = self.transfers, self.conversations
        return (
            route("POST", "/v1/downloads", transfers.download, DownloadRequest, BEGUN),
            route("POST", "/v1/copies", transfers.copy, CopyRequest, BEGUN),
            route("POST", "/v1/transfers/{what}", transfers.change, TransferOrder),
            route("GET", "/v1/conversations", conversations.all),
            route("POST", "/v1/conversations/search", conversations.holding, SearchText),
            route("GET", "/v1/conversations/{id}", conversations.read, ConversationId),
            route("PUT", "/v1/conversations/{id}", conversations.write, Conversation),
            route("DELETE", "/v1/conversations/{id}", conversations.delete, ConversationId),
        )

    def subscribe(self) -> None:
        self.node.signals.on(LinkedMacChanged, self._announce)
        self.node.signals.on(MacGone, lambda mac: self.transfers.gone(mac.device_id))

    def _announce(self, contact: LinkedMacChanged) -> None:
        self.node.tasks.spawn("Reporting what this Mac holds", self.inventory.announce(contact.device_id))
