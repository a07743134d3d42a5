"""All facts that the demo model learns. The sentences are our own."""

from __future__ import annotations

from core.demo.training import (
    facts_commands,
    facts_demo,
    facts_kept,
    facts_keys,
    facts_options,
    facts_plan,
    facts_recovery,
    facts_trust,
    facts_words,
)
from core.demo.training.facts import Fact, parts
from core.demo.training.facts_asks import MORE

MODULES = (
    facts_words, facts_plan, facts_recovery, facts_kept, facts_trust, facts_keys, facts_commands, facts_options,
    facts_demo,
)  # fmt: skip


def all_facts() -> tuple[Fact, ...]:
    """Every fact, names unique."""
    known = (found for module in MODULES for found in module.FACTS)
    return tuple(f._replace(asks=tuple(dict.fromkeys((*f.asks, *parts(MORE.get(f.name, ""), "|"))))) for f in known)
