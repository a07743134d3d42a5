"""`python -m core.models.slicing.slice_bytes DIR START:STOP:ENDS ...` prints the byte ranges of each slice, as JSON.

ENDS is any of e (embedding) and o (norm and head). Shows what a Mac must download for its stage; reads headers only.
Prints a list of `Part` for each slice, or a `Problem` with exit status 1. Works on foreign files, so it runs through
`core.models.files.sandbox`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import mlx.core as mx

from core.errors import UsageError
from core.models.files.model_folder import ModelFolder, read_folder
from core.models.files.parts import Part
from core.models.files.sandbox import answer
from core.models.lean_imports import import_for_layers_only

if __name__ == "__main__":
    import_for_layers_only()

from core.models.slicing.examine import CPU_SECONDS
from core.models.slicing.loading import slice_parts


def parts_of_slice(folder: ModelFolder, words: str) -> tuple[Part, ...]:
    """Byte ranges of the slice that `words` describe. Raises UsageError, and as `slice_parts`."""
    start, _, rest = words.partition(":")
    stop, _, ends = rest.partition(":")
    if not (start.isdecimal() and stop.isdecimal() and set(ends) <= {"e", "o"}):
        raise UsageError(f"{words!r} is not a slice.", "Write it as 0:8:eo.")
    return slice_parts(folder, int(start), int(stop), embed="e" in ends, output="o" in ends)


def main() -> int:
    """Print the ranges or the problem; returns the exit status."""

    def work() -> list[tuple[Part, ...]]:
        folder = read_folder(Path(sys.argv[1]))
        return [parts_of_slice(folder, words) for words in sys.argv[2:]]

    status = answer(work, CPU_SECONDS)
    mx.synchronize()
    mx.clear_streams()
    return status


if __name__ == "__main__":
    sys.exit(main())
