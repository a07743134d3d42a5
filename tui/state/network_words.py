"""Networks between two Macs in words."""

from __future__ import annotations

from collections.abc import Sequence

from core.requests.checks import PathFigures


def path_words(paths: Sequence[PathFigures]) -> str:
    """ "Thunderbolt 0.31 ms, 2400 Mbit/s; Wi-Fi 4.10 ms, 310 Mbit/s"; "" where no network is known."""
    return "; ".join(map(_words, paths))


def _words(path: PathFigures) -> str:
    rate = f", {path.bytes_per_s * 8 / 1e6:.0f} Mbit/s" if path.bytes_per_s else ""
    return f"{path.kind or 'another network'} {1e3 * path.rtt_s:.2f} ms{rate}"
