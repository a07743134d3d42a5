"""All facts that the demo model learns. The sentences are our own."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Final

from core.demo.training import (
    facts_api,
    facts_chat,
    facts_commands,
    facts_demo,
    facts_disks,
    facts_kept,
    facts_keys,
    facts_measure,
    facts_options,
    facts_plan,
    facts_recovery,
    facts_screens,
    facts_shared,
    facts_trust,
    facts_words,
)
from core.demo.training.corpus_phrases import templated
from core.demo.training.facts import Fact, normal

MODULES: Final = (
    facts_words, facts_plan, facts_shared, facts_recovery, facts_kept, facts_trust, facts_disks, facts_keys,
    facts_screens, facts_chat, facts_commands, facts_options, facts_api, facts_measure, facts_demo,
)  # fmt: skip
# lines "name of a fact: a question about it"
ASKS: Final = Path(__file__).parent / "asks"


@cache
def all_facts() -> tuple[Fact, ...]:
    """Every fact, names unique, with all its questions; one that two facts share belongs to none."""
    known = [found for module in MODULES for found in module.FACTS]
    asks: dict[str, dict[str, str]] = {found.name: {normal(ask): ask for ask in found.asks} for found in known}
    for file in sorted(ASKS.glob("*.txt")):
        for line in file.read_text("utf-8").splitlines():
            name, _, ask = line.partition(": ")
            if name in asks and ask.strip():
                asks[name].setdefault(normal(ask), ask.strip())
    owners: dict[str, int] = defaultdict(int)
    for found in known:
        for question in asks[found.name].keys() | {normal(template) for template in templated(found)}:
            owners[question] += 1
    return tuple(
        found._replace(asks=tuple(ask for key, ask in asks[found.name].items() if owners[key] == 1)) for found in known
    )
