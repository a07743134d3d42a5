"""Compiles grammars with llguidance. Errors name the parts of a schema that can't be enforced."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any, Final

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from core.constraint import Grammar
from core.errors import UsageError
from core.text import clean_text

# a step of a row may take about 20 ms, and its grammar's state about 64 MiB
LIMITS: Final = LLParserLimits(
    initial_lexer_fuel=500_000,
    step_lexer_fuel=200_000,
    step_max_items=50_000,
    max_lexer_states=30_000,
    max_grammar_size=200_000,
    precompute_large_lexemes=False,
    verbose_errors=False,
)
# white space as json.dumps writes it: flexible white space invites endless white space, and fixed text can be forced
STYLE: Final = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_STRICT: Final = {"lenient": False, "coerce_one_of": False, "whitespace_pattern": None}
_BOUNDS: Final = (
    ("exclusiveMinimum", "minimum", ("maximum", "exclusiveMaximum"), 1),
    ("exclusiveMaximum", "maximum", ("minimum", "exclusiveMinimum"), -1),
)
_RANGE: Final = re.compile(r"regex for \w+ range: min=(?:Some\((.+?)\)|None), max=(?:Some\((.+?)\)|None)")
_FIX: Final = "Leave it out of the schema, or ask for text."
_UNKNOWN: Final = "Unimplemented keys: "
_ERROR: Final = "error: "
_IN_GRAMMAR: Final = "failed to compile JSON schema: "


def tokenizer_of(tokens: list[bytes], special: frozenset[int], eos: tuple[int, ...]) -> LLTokenizer:
    """Tokenizer for matchers of a vocabulary; each token of `eos` ends a text. Raises ValueError."""
    return LLTokenizer(_Tokens(tokens, special | set(eos), eos[0]), eos_token=list(eos))  # type: ignore[arg-type]


def matcher_of(grammar: Grammar, tokenizer: LLTokenizer) -> LLMatcher:
    """Matcher for the tokens of one text. Raises UsageError for a grammar that can't be enforced."""
    try:
        matcher = LLMatcher(tokenizer, compiled(grammar), log_level=0, limits=LIMITS)
    except (ValueError, RecursionError) as error:
        raise _refused(grammar, str(error)) from error
    if matcher.is_error():
        raise _refused(grammar, matcher.get_error())
    return matcher


def compiled(grammar: Grammar) -> str:
    """Compile to llguidance's form. Raises ValueError."""
    match grammar.kind:
        case "regex":
            return LLMatcher.grammar_from_regex(grammar.source)
        case "lark":
            return LLMatcher.grammar_from_lark(grammar.source)
        case "json_schema":
            overrides: Any = STYLE | _STRICT
            source = grammar.source
            if '"exclusiveM' in source:
                source = json.dumps(enforceable(json.loads(source)))
            return LLMatcher.grammar_from_json_schema(source, overrides=overrides)


def enforceable(schema: Any) -> Any:
    """The schema, without exclusive bounds that llguidance lets pass: whole ones less than 1 away from the other."""
    if isinstance(schema, list):
        return [enforceable(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: enforceable(value) for name, value in schema.items()}
    numbers = {name: value for name, value in found.items() if isinstance(value, int | float) and abs(value) < 1e15}
    for exclusive, inclusive, others, sign in _BOUNDS:
        bound = numbers.get(exclusive, 0.5)
        gaps = [numbers[other] - bound for other in others if other in numbers]
        if bound % 1 == 0 and inclusive not in found and (near := [gap for gap in gaps if 0 < sign * gap < 1]):
            del found[exclusive]
            found[inclusive] = bound + near[0] / 1e6
    return found


class _Tokens:
    """A vocabulary in the interface of llguidance's `TokenizerWrapper`."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokens: list[bytes], special: frozenset[int], eos: int) -> None:
        self.tokens, self.special_token_ids, self.eos_token_id = tokens, sorted(special), eos
        self._ids = {word: token for token, word in enumerate(tokens) if word and token not in special}
        self._longest = max(map(len, self._ids), default=0)

    def __call__(self, text: str) -> list[int]:
        """Tokens of a forced text, longest match first, because the model's own rules aren't known here."""
        tokens, rest = [], text.encode()
        while rest:
            sizes = range(min(self._longest, len(rest)), 0, -1)
            size = next((size for size in sizes if rest[:size] in self._ids), 0)
            if not size:
                break  # no token begins like this, so the rest isn't forced
            tokens.append(self._ids[rest[:size]])
            rest = rest[size:]
        return tokens


def _refused(grammar: Grammar, said: str) -> UsageError:
    lines = [clean_text(line).strip() for line in said.splitlines() if line.strip()] or [""]
    why = next((line.removeprefix(_ERROR) for line in lines if line.startswith(_ERROR)), lines[0])
    _, is_schema, schema = why.partition(_IN_GRAMMAR)
    if is_schema:
        why = schema
    elif grammar.kind != "json_schema":
        kind = "regular expression" if grammar.kind == "regex" else "grammar"
        return UsageError(f"The {kind} can't be enforced: {why[:300].rstrip('.:')}.", "Correct it, or ask for text.")
    if bounds := _RANGE.search(why):
        why = f"a bound of a number is too large: {', '.join(filter(None, bounds.groups()))}"
    if why.startswith(_UNKNOWN):
        with suppress(ValueError):
            why = ", ".join(json.loads(why.removeprefix(_UNKNOWN)))
    return UsageError(f"The schema can't be enforced: {why[:300].rstrip('.:')}.", _FIX)
