"""Building blocks of llguidance's Lark rules: strings, a family's markers, and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from core.models.text.grammar import STYLE

_LENIENT: Final = {"lenient": True, "coerce_one_of": True}

# a family's marker as a rule: its own token, or text
Mark = Callable[[str], str]


def quoted(text: str) -> str:
    """Lark string for exactly that text."""
    return json.dumps(text, ensure_ascii=False)


def json_rule(schema: Mapping[str, Any], *, strict: bool) -> str:
    """Rule of a schema; unless `strict`, parts that can't be enforced are ignored."""
    return f"%json {json.dumps({**schema, 'x-guidance': {**STYLE, **({} if strict else _LENIENT)}})}"
