"""The first question of `status` and of a screen about answers, on a home with logs of finished ones."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from core.node.answers.token_log import AnswerRecord, TokenLog, unfinished
from tests.benches.growth.curve import cpu_ms

SECRET: Final = bytes(range(32))
TOKENS: Final = 12_000


def measure(folder: Path, size: int) -> float:
    """CPU of the question for unfinished answers, with `size` finished ones of 12,000 tokens on disk."""
    logs = folder / "logs"
    record = AnswerRecord(request_id="0" * 32, model="m", fingerprint="f", prompt=[1], max_tokens=TOKENS, macs=("a",))
    log = TokenLog(logs, SECRET, record)
    for token in range(TOKENS):
        log.append(token)
        log.say("word ")
    log.close("stop")
    (whole,) = logs.iterdir()
    for number in range(1, size):  # all are one file under many names
        (logs / whole.name.replace("0" * 32, f"{number:032x}")).hardlink_to(whole)
    return cpu_ms(lambda: unfinished(logs, SECRET))
