"""Building blocks of llguidance's Lark rules: strings, a family's markers, and JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from core.models.text.grammar import STYLE, enforceable

_LENIENT: Final = {"lenient": True, "coerce_one_of": True}

TAGS: Final = re.compile(r"(<[^<>]*>|\[[A-Z_]+\])")
# a family's marker as a rule: its own token, or text
Mark = Callable[[str], str]


def quoted(text: str) -> str:
    """Lark string for exactly that text."""
    return json.dumps(text, ensure_ascii=False)


def json_rule(schema: Mapping[str, Any], *, strict: bool) -> str:
    """Rule of a schema; unless `strict`, parts that can't be enforced are ignored."""
    return f"%json {json.dumps({**enforceable(schema), 'x-guidance': {**STYLE, **({} if strict else _LENIENT)}})}"


def mark_all(text: str, mark: Mark) -> str:
    """`text` as a rule whose tags may be tokens."""
    rules: list[str] = []
    for piece in filter(None, TAGS.split(text)):
        rule = mark(piece)
        if rule.startswith('"') and rules and rules[-1].startswith('"'):
            rule = quoted(json.loads(rules.pop()) + piece)
        rules.append(rule)
    return " ".join(rules)
