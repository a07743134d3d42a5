"""Child process of a check that needs mlx: `python -m core.verify.<module> FOLDER [ARGUMENT ...]`."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from typing import Final, NoReturn

import mlx.core as mx

from core.models.files.sandbox import answer
from core.models.metal import obey_device
from core.verify.check import Outcome

CPU_SECONDS: Final = 600


def report(check: Callable[..., Outcome]) -> NoReturn:
    """Run `check` with the arguments and report its outcome. Temporary files go to FOLDER, which the parent deletes."""
    folder, *arguments = sys.argv[1:]
    tempfile.tempdir = folder
    obey_device()
    status = answer(lambda: check(*arguments), CPU_SECONDS)
    mx.synchronize()
    mx.clear_streams()
    sys.exit(status)
