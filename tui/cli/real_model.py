"""The model of `macluster demo --real`: small, real, and downloaded from the hub once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from core.errors import MaclusterError, ModelError, TransferError
from core.events import Transfer
from core.models.files.catalog import Catalog
from core.models.files.hub_download_messages import FetchOrder
from core.models.files.layers_on_disk import size_text
from core.node.disks.hub_transfers import download
from core.node.disks.transfer_progress import QueuedTransfer, TransferProgress
from core.settings import hub_cache
from tui.cli.output import print_progress
from tui.state.disks import waiting_words

REAL_MODEL: Final = "mlx-community/SmolLM2-135M-Instruct"
REPORTS: Final = 10  # lines of progress during a download


async def real_model() -> Path:
    """Folder of the model in this user's hub cache. Raises ModelError if it is not there and can't be downloaded."""
    cache = hub_cache()
    with suppress(ModelError):  # missing, or its download is not finished
        return Path(Catalog([cache]).find(REAL_MODEL).path)
    print_progress(f"Downloading {REAL_MODEL} from the hub, once …")
    first = Transfer(model=REAL_MODEL, mac="", state="asking")
    progress = TransferProgress(QueuedTransfer(first=first), _progress_printer())
    order = FetchOrder(repo=REAL_MODEL, revision="main", cache=str(cache))
    try:
        await download(order, REAL_MODEL, progress, progress.count)
    except MaclusterError as error:
        raise TransferError(error.what, f"{error.fix} Without --real, the demo needs no network.") from error
    return Path(Catalog([cache]).find(REAL_MODEL).path)


def _progress_printer() -> Callable[[Transfer, str], None]:
    """Prints a line at each tenth of the bytes, and until when the hub takes no request."""
    printed: set[int | str] = {0}

    def show(now: Transfer, _: str) -> None:
        waits = waiting_words(now)
        if (what := waits or REPORTS * now.done // max(now.total, 1)) not in printed:
            printed.add(what)
            print_progress(waits or f"{size_text(now.done)} of {size_text(now.total)}")

    return show
