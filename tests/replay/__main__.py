"""`python -m tests.replay [RECORDING …]`: counts the prompt tokens read in recorded sessions, by size of the context.

With `--ring` the demo model on two workers reads them, too.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

from core.engine.requests import Request
from tests.replay.recording import FOLDER, Prompt, rounds_of
from tests.replay.replay import (
    DEMO_MODEL,
    Replayed,
    RequestResult,
    longest,
    over_a_simulated_ring,
    replay,
    tokenizer_in,
)
from tests.support.worker_ring import worker_ring

CONTEXTS = (1.2, 1.5, 2.0, 2.5, 4.0, 6.0)
BUSY_S = 900.0  # a late chunk of a long prompt is slow without a GPU
KINDS = {"trimmed": None, "whole rows": 0}


def on_workers(rounds: list[list[Prompt]], context: int) -> Replayed:
    """Replay over two stages of the demo model."""
    with worker_ring(DEMO_MODEL, (3,), context=context, try_s=BUSY_S) as ring:

        def ask(requests: list[Request]) -> list[RequestResult]:
            answers = ring.generate_all(requests, timeout_s=3600)
            return [RequestResult(answer.done.reused_tokens, answer.tokens) for answer in answers]

        return replay(rounds, context, ask)


def main() -> None:
    """Print a line for each context."""
    parser = argparse.ArgumentParser(prog="python -m tests.replay", description=__doc__)
    parser.add_argument("recordings", nargs="*", type=Path, default=sorted(FOLDER.glob("*.json")))
    parser.add_argument("--ring", action="store_true", help="also with a model, over two workers")
    asked = parser.parse_args()
    with TemporaryDirectory() as folder:
        tokenizer = tokenizer_in(Path(folder))
        for path in asked.recordings:
            rounds = rounds_of(path, tokenizer)
            print(f"{path.stem}: {sum(map(len, rounds))} requests, the longest of {longest(rounds)} tokens")
            for times in CONTEXTS:
                for kind, limit in KINDS.items():
                    context = int(times * longest(rounds))
                    print(
                        f"  context {context:7} ({times}x) {kind:11}",
                        _line(over_a_simulated_ring(rounds, context, limit)),
                    )
            if asked.ring:
                print("  two workers, 2.5x                 ", _line(on_workers(rounds, int(2.5 * longest(rounds)))))


def _line(done: Replayed) -> str:
    return f"read {done.read:7} / new {done.new:6} = {done.ratio:.3f}"


if __name__ == "__main__":
    main()
