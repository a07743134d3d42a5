"""What became of comparing what was read again behind a loss with the first time, as an event and as a sentence."""

from __future__ import annotations

import msgspec

from core.events import ReplayChecked
from core.worker.messages import Replayed


def checked(report: Replayed) -> ReplayChecked:
    """As everybody is told of it."""
    return ReplayChecked(**msgspec.structs.asdict(report))


def replay_text(told: ReplayChecked) -> str:
    """The sentence for the log."""
    token = "the same" if told.same_token else "ANOTHER one"
    differ = f"{told.mismatches} of {told.logits} logits differ from the first time, by {told.difference:.2g} at most"
    if not told.mismatches:
        differ = f"all {told.logits} logits are those of the first time"
    return f"Replay check: {told.tokens} tokens were read again, and {differ}; the most likely token is {token}."
