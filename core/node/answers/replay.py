"""What became of comparing what was read again behind a loss with the first time, as an event and as a sentence."""

from __future__ import annotations

import msgspec

from core.events import ReplayChecked
from core.worker.messages import Replayed


def checked(report: Replayed) -> ReplayChecked:
    """As everybody is told of it."""
    return ReplayChecked(**msgspec.structs.asdict(report))


def replay_text(event: ReplayChecked) -> str:
    """The sentence for the log."""
    token = "the same" if event.same_token else "ANOTHER one"
    differ = (
        f"{event.mismatches} of {event.logits} logits differ from the first time, by {event.difference:.2g} at most"
    )
    if not event.mismatches:
        differ = f"all {event.logits} logits are those of the first time"
    return f"Replay check: {event.tokens} tokens were read again, and {differ}; the most likely token is {token}."
