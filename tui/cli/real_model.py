"""The model of `macluster demo --real`: small, real, and downloaded from the hub once."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

from core.errors import MaclusterError, ModelError, TransferError
from core.models.files.byte_rate_limit import ByteRateLimit
from core.models.files.catalog import Catalog
from core.models.files.hub_download_messages import FetchOrder
from core.models.files.layers_on_disk import size_text
from core.node.disks.hub_transfers import download
from core.node.disks.transfer_progress import Report
from core.settings import hub_cache
from tui.cli.output import print_progress

REAL_MODEL: Final = "mlx-community/SmolLM2-135M-Instruct"
REPORTS: Final = 10  # lines of progress during a download


async def real_model() -> Path:
    """Folder of the model in this user's hub cache. Raises ModelError if it is not there and can't be downloaded."""
    cache = hub_cache()
    with suppress(ModelError):  # missing, or its download is not finished
        return Path(Catalog([cache]).find(REAL_MODEL).path)
    print_progress(f"Downloading {REAL_MODEL} from the hub, once …")
    order = FetchOrder(repo=REAL_MODEL, revision="main", cache=str(cache))
    try:
        await download(order, REAL_MODEL, ByteRateLimit(), _progress_printer())
    except MaclusterError as error:
        raise TransferError(error.what, f"{error.fix} Without --real, the demo needs no network.") from error
    return Path(Catalog([cache]).find(REAL_MODEL).path)


def _progress_printer() -> Report:
    """A report of a download that prints a line at each tenth of the bytes."""
    printed = 0

    def report(phase: str, done: int, total: int) -> None:
        nonlocal printed
        if (reached := REPORTS * done // max(total, 1)) > printed:
            printed = reached
            print_progress(f"{size_text(done)} of {size_text(total)}")

    return report
