"""Compiles grammars where they can do no harm: in a child that is watched and killed.

A schema comes from whoever asks, and small ones can mean a lot. What has passed here within its limits is compiled by
the worker within llguidance's own (`grammar.LIMITS`). The child is this module, run as `python -m
core.models.text.grammar_check`: grammars on stdin, a Problem or nothing on stdout. Its tokens are bytes.
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
from core.models.files.sandbox import Job, Run, run_child
from core.models.text.grammar import matcher_of, tokenizer_of
from core.settings import MIB

MODULE: Final = "core.models.text.grammar_check"
MAX_GRAMMAR_BYTES: Final = 64 * MIB
OWN_BYTES: Final = MAX_GRAMMAR_BYTES // 2  # of the process; one that has more is not asked again
CPU_SECONDS: Final = 2
MAX_SECONDS: Final = 20.0  # of wall time: a Mac that computes has little time for this
STEPS: Final = 64
_END: Final = 256
_USUAL: Final = Grammar(kind="json_schema", source='{"type":"object","properties":{"a":{"type":"string"}}}')
_FIX: Final = "Ask with a simpler shape, or for text."

_decoder = msgspec.json.Decoder(dict[str, Grammar])


def check(
    grammars: Mapping[str, Grammar],
    run: Run = run_child,
    *,
    seconds: float = MAX_SECONDS,
    rss: int = OWN_BYTES + MAX_GRAMMAR_BYTES,
) -> None:
    """Compile each in a child process that `run` has. Raises UsageError for one that cannot be enforced, by its name,
    and for all that take more than `CPU_SECONDS`, `seconds` of wall time or `rss` bytes with the process itself.
    """
    job = Job(
        module=MODULE, subject="The shape of this answer", fix=_FIX, seconds=seconds, rss_bytes=rss, answer_bytes=MIB
    )
    try:
        status, reported = run(job, msgspec.json.encode(grammars))
    except BadModel as error:  # it is no model's fault
        raise UsageError(error.what, error.fix) from error
    if status == 1:
        raise error_from(msgspec.json.decode(reported, type=Problem))
    if status:
        raise UsageError("The shape of this answer cannot be compiled.", _FIX)


def compile_all(grammars: Mapping[str, Grammar]) -> None:
    """The child's work. Raises UsageError."""
    tokenizer = tokenizer_of([bytes([byte]) for byte in range(_END)] + [b""], frozenset(), (_END,))
    for name, grammar in grammars.items():
        try:
            _walk(matcher_of(grammar, tokenizer))
        except UsageError as error:
            raise UsageError(f"{name}: {error.what}" if name else error.what, error.fix) from error


def _walk(matcher: LLMatcher) -> None:
    """Some are known to be too much only where they are used. Raises UsageError."""
    choice = random.Random(0)
    for _ in range(STEPS):
        marks = matcher.compute_logit_bias()
        if matcher.is_error():
            raise UsageError("The shape of this answer takes too much to enforce.", _FIX)
        if not (found := [token for token in range(_END) if marks[token]]):
            return
        matcher.consume_token(choice.choice(found))


def _checked(request: bytes) -> tuple[int, bytes]:
    """The child's work: the exit status, and the complaint."""
    try:
        compile_all(_decoder.decode(request))
    except MaclusterError as error:
        return 1, msgspec.json.encode(error.problem)
    return 0, b""


if __name__ == "__main__":
    run_jobs(_checked, CPU_SECONDS, lambda: compile_all({"": _USUAL}))
