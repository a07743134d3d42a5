"""`python -m tests.processes.reader DIR START STOP`: loads one slice of a model of four layers, and prints the cost."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import mlx.core as mx
import psutil

from core.models.files.model_folder import read_folder
from core.models.lean_imports import import_for_layers_only

import_for_layers_only()  # as a worker does

from core.models.slicing.loading import load_slice  # noqa: E402

LAYERS = 4


def main() -> None:
    directory, (start, stop) = Path(sys.argv[1]), map(int, sys.argv[2:])
    process = psutil.Process()
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    rss, read = process.memory_info().rss, read_bytes()
    stage = load_slice(read_folder(directory), start, stop, embed=start == 0, output=stop == LAYERS)
    costs = {
        "weight_bytes": stage.weight_bytes,
        "read_bytes": read_bytes() - read,
        "rss_bytes": process.memory_info().rss - rss,
        "peak_bytes": peak_bytes() - rss,
    }
    print(json.dumps(costs))
    mx.synchronize()
    mx.clear_streams()


def read_bytes() -> int:
    """Bytes that this process has read so far, from disk or from the page cache."""
    return field("io", "rchar")


def peak_bytes() -> int:
    return field("status", "VmHWM") * 1024


def field(file: str, name: str) -> int:
    fields = dict(line.split(":", 1) for line in Path("/proc/self", file).read_text().splitlines())
    return int(fields[name].split()[0])


if __name__ == "__main__":
    main()
