"""Dialogs of the picker about transfers: download, copy, pause, limit, stop."""

from __future__ import annotations

from collections.abc import Callable

from textual.content import Content

from core.events import Snapshot
from core.requests.disks import CopyRequest, TransferOrder
from core.requests.plans import HubOffer, ModelChoice
from tui.screens.base import NodeScreen, Sources
from tui.screens.dialogs import AskScreen, ChoiceScreen
from tui.state.disks import comes_here, copies_of, limit_of, megabytes, running_words
from tui.state.format import gigabytes_short
from tui.state.load_options import download_of


class TransferDialogs:
    """Dialogs over `screen`, which runs what they decide."""

    def __init__(self, screen: NodeScreen, sources: Sources) -> None:
        self._screen, self._client, self._catalog = screen, sources.client, sources.catalog

    def bring(self, choice: ModelChoice | None, now: Snapshot) -> None:
        """Copy the model to Macs that lack it, or download it or another one."""
        if choice is not None and choice.offer:
            return self._download_offered(choice, choice.offer)
        copies = copies_of(choice, now) if choice else None
        if choice is None or copies is None:
            return self._download_named("" if choice is None or choice.layers else choice.name)
        body = f"{choice.name} is {gigabytes_short(choice.total_bytes)} GB. It is copied over encrypted links."
        another = () if comes_here(now) else ("Download another model…",)
        answers = ("Cancel", f"Copy to {copies.names}", *another)

        def answered(number: int) -> None:
            if number == 1:
                self._screen.do(self._client.copy(CopyRequest(fingerprint=choice.fingerprint, to=copies.to)))
            else:
                self._download_named("")

        self._screen.ask("Copy or download", body, answers, answered)

    def pause(self, now: Snapshot) -> None:
        is_paused = all(each.state == "paused" for each in now.transfers)
        self._order(TransferOrder(what="resume" if is_paused else "pause"))

    def limit(self, now: Snapshot) -> None:
        words = "Megabytes per second to each Mac (0: no limit):"
        limit = max((each.limit_bytes_per_s for each in now.transfers), default=0)
        self._screen.ask_line(
            AskScreen("Limit the transfer rate", words, megabytes(limit) if limit else "", check=limit_of),
            lambda text: self._order(TransferOrder(what="limit", bytes_per_s=limit_of(text))),
        )

    def stop(self, now: Snapshot, no: str, then: Callable[[], object] | None = None) -> None:
        """Ask whether to stop transfers; `no` keeps them, and then calls `then`."""
        body = Content("What has arrived stays on disk; the next try continues from there.")

        def answered(number: int | None) -> None:
            if number:
                self._order(TransferOrder(what="stop"))
            elif then:
                then()

        self._screen.app.push_screen(ChoiceScreen(f"Stop {running_words(now)}?", body, (no, "Stop")), answered)

    def _download_offered(self, choice: ModelChoice, offer: HubOffer) -> None:
        where = f"{gigabytes_short(choice.total_bytes)} GB on the hub. Licence: {offer.licence or 'unknown'}."
        fits = "" if choice.preview.plan else " It doesn't fit these Macs right now; the preview says why."
        begin, whole = (download_of(offer.repo, offer.revision, split=split) for split in (True, False))
        answers = (
            "Cancel",
            "Just the config for now (a few MB). Each Mac downloads its share when you load it",
            "Download the whole model to this Mac",
            "A different model…",
        )

        def answered(number: int) -> None:
            if number == len(answers) - 1:
                self._download_named("")
            else:
                self._screen.do(self._client.download(begin if number == 1 else whole))

        self._screen.ask(f"Download {choice.name}", where + fits, answers, answered)

    def _download_named(self, name: str) -> None:
        words = "Repository on the hub (owner/name), for example mlx-community/Qwen3-4B-4bit:"
        names = [choice.name for choice in self._catalog.choices or ()]
        kept = self._catalog.typed if self._catalog.typed not in names else ""

        def typed(repo: str) -> None:
            self._catalog.typed = repo  # the next try starts with it if this one fails
            self._screen.do(self._client.download(download_of(repo)))

        self._screen.ask_line(AskScreen("Download a model", words, name or kept, check=download_of), typed)

    def _order(self, order: TransferOrder) -> None:
        self._screen.do(self._client.change_transfers(order))
