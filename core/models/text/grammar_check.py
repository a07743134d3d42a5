"""Compiles grammars in a child process that is watched and killed at its limits.

Schemas come from clients, and a small one can take a lot. A grammar that passes is compiled by the worker within
llguidance's own limits (`grammar.LIMITS`). The child is this module, run as `python -m core.models.text.grammar_check`:
grammars on stdin, a Problem or nothing on stdout. Its tokens are bytes.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final

import msgspec
from llguidance import LLMatcher

from core.constraint import Grammar
from core.errors import BadModel, MaclusterError, Problem, UsageError, error_from
from core.models.files.ready_child import run_jobs
from core.models.files.sandbox import Job, Run
from core.models.text.grammar import matcher_of, tokenizer_of
from core.settings import MIB

MODULE: Final = "core.models.text.grammar_check"
MAX_GRAMMAR_BYTES: Final = 64 * MIB
OWN_BYTES: Final = MAX_GRAMMAR_BYTES // 2  # of the process; a larger one is replaced
CPU_SECONDS: Final = 2
MAX_SECONDS: Final = 20.0  # wall time; a computing Mac has little time for this
STEPS: Final = 64
_END: Final = 256
_USUAL: Final = Grammar(kind="json_schema", source='{"type":"object","properties":{"a":{"type":"string"}}}')
_FIX: Final = "Ask with a simpler shape, or for text."

_decoder = msgspec.json.Decoder(dict[str, Grammar])


def check(grammars: Mapping[str, Grammar], run: Run) -> None:
    """Compile each grammar in a child process run by `run`.

    Raises UsageError naming the grammar that can't be enforced, and if all together exceed `CPU_SECONDS`, `MAX_SECONDS`
    of wall time or `MAX_GRAMMAR_BYTES` besides the process itself.
    """
    rss = OWN_BYTES + MAX_GRAMMAR_BYTES
    job = Job(module=MODULE, subject="The shape of this answer", fix=_FIX, seconds=MAX_SECONDS, rss_bytes=rss)
    try:
        status, reported = run(job, msgspec.json.encode(grammars))
    except BadModel as error:  # the model isn't at fault
        raise UsageError(error.what, error.fix) from error
    if status == 1:
        raise error_from(msgspec.json.decode(reported, type=Problem))
    if status:
        raise UsageError("The shape of this answer can't be compiled.", _FIX)


def compile_all(grammars: Mapping[str, Grammar]) -> None:
    """In the child: compile. Raises UsageError."""
    tokenizer = tokenizer_of([bytes([byte]) for byte in range(_END)] + [b""], frozenset(), (_END,))
    for name, grammar in grammars.items():
        try:
            _walk(matcher_of(grammar, tokenizer))
        except UsageError as error:
            raise UsageError(f"{name}: {error.what}" if name else error.what, error.fix) from error


def _walk(matcher: LLMatcher) -> None:
    """Use the matcher, because some limits show only then. Raises UsageError."""
    choice = random.Random(0)
    for _ in range(STEPS):
        marks = matcher.compute_logit_bias()
        if matcher.is_error():
            raise UsageError("The shape of this answer takes too long to enforce.", _FIX)
        if not (found := [token for token in range(_END) if marks[token]]):
            return
        matcher.consume_token(choice.choice(found))


def _checked(request: bytes) -> tuple[int, bytes]:
    try:
        compile_all(_decoder.decode(request))
    except MaclusterError as error:
        return 1, msgspec.json.encode(error.problem)
    return 0, b""


if __name__ == "__main__":
    run_jobs(_checked, CPU_SECONDS, lambda: compile_all({"": _USUAL}))
