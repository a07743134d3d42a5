"""What rules of llguidance's Lark are made of: texts, marks of a family, and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from core.models.text.grammar import STYLE

_LENIENT: Final = {"lenient": True, "coerce_one_of": True}

# how a marker of the family is written: as a token of its own, or as text
Mark = Callable[[str], str]


def quoted(text: str) -> str:
    """That very text."""
    return json.dumps(text, ensure_ascii=False)


def json_rule(schema: Mapping[str, Any], *, strict: bool) -> str:
    """What the schema says or, where it need not be `strict`, as much of that as can be enforced."""
    return f"%json {json.dumps({**schema, 'x-guidance': {**STYLE, **({} if strict else _LENIENT)}})}"
