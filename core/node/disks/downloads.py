"""Downloads from the hub, each in a child of its own: what a library prints or does reaches no screen."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from typing import Final

import msgspec

from core.errors import TransferError, error_from
from core.models.files.byte_rate_limit import ByteRateLimit
from core.models.files.hub_download_messages import AnyOrder, Fetched, LimitOrder

_QUIET: Final = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_XET": "1",  # its parts cannot be gone on with
    "PYTHONSAFEPATH": "1",
}


async def download(order: AnyOrder, model: str, pace: ByteRateLimit) -> AsyncIterator[Fetched]:
    """Bytes of the model with this name that are there, again and again until all are, no quicker than `pace`.
    Raises TransferError. Closing the iterator ends the child; what it has brought stays.
    """
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "core.models.files.hub_download"),
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        env={**os.environ, **_QUIET},
    )
    assert child.stdin
    assert child.stdout
    try:
        limit = 0
        child.stdin.write(msgspec.json.encode(order) + b"\n")
        while True:
            if pace.bytes_per_s != limit:
                limit = pace.bytes_per_s
                child.stdin.write(msgspec.json.encode(LimitOrder(bytes_per_s=limit)) + b"\n")
            if not (line := await child.stdout.readline()):
                break
            progress = msgspec.json.decode(line, type=Fetched)
            if progress.problem:
                raise error_from(progress.problem)
            yield progress
        if await child.wait() != 0:
            raise TransferError(f"Downloading {model} ended unexpectedly (exit status {child.returncode}).")
    except (ConnectionError, msgspec.MsgspecError) as error:
        raise TransferError(f"Downloading {model} ended unexpectedly.") from error
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
