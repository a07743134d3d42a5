"""Faults of other Macs that this node found and no roster lists."""

from __future__ import annotations


class KnownFaults:
    """Sentences by text id."""

    def __init__(self) -> None:
        self.wrong_key: dict[str, str] = {}
        self.other_model: dict[str, str] = {}
