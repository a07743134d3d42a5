"""What this node found out about Macs that no roster says; whoever finds it out writes it down."""

from __future__ import annotations


class KnownFaults:
    """Sentences by text id. `wrong_key`: which other key answered where that Mac was looked for; `other_model`: what in
    its files is not the plan's.
    """

    def __init__(self) -> None:
        self.wrong_key: dict[str, str] = {}
        self.other_model: dict[str, str] = {}
