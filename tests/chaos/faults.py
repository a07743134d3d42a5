"""The table of faults: the action, its place, the number of tries, and the demand."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NamedTuple

from tests.chaos.bed import MOST_AGAIN, Bed, Where
from tests.chaos.disks import full_disk_at_log, full_disk_at_save
from tests.chaos.heads import kill_at_load_of_session, two_heads
from tests.chaos.lines import bad_line, half_open, pulled, pulled_alone, spoilt
from tests.chaos.processes import (
    kill_at_load,
    kill_head,
    kill_node,
    kill_own_worker,
    kill_worker,
    long_pause,
    pause,
    pause_worker,
    short_pause,
    wrong_clocks,
)
from tests.chaos.streams import kill_under_stream
from tests.chaos.trial import Tried
from tests.support.taps import Fate

Run = Callable[[Bed, random.Random], Awaitable[Tried]]


class Fault(NamedTuple):
    """A row of the report: `run` is one try; `full`, `short` and `kills` are the numbers of tries in a round of that
    kind.

    `whole`: it begins with all Macs in the plan. `demand` is the text of the table of faults.
    """

    name: str
    what: str
    demand: str
    where: Where
    run: Run
    full: int
    short: int = 0
    whole: bool = True
    kills: int = 0


DEAD: Final = "detected < 3 s, goes on without it"
BACK: Final = f"{DEAD}, back < 5 s"
LINK: Final = "0 accepted, link closed < 0.1 s"
AGAIN: Final = f"≤ {MOST_AGAIN} tokens read again"
NO_LOSS: Final = "finishes, no Mac taken for dead"
HANGS: Final = "nothing hangs"
BY_RANKS: Final[tuple[tuple[str, str, Run, int], ...]] = (
    ("worker", "a rank's worker", kill_worker, 8),
    ("head-worker", "the head's worker", kill_own_worker, 8),
    ("node", "a rank's node", kill_node, 6),
    ("head", "the head's node, started again", kill_head, 3),
    ("load", "a worker or a rank's node at a load", kill_at_load, 5),
)
OF_RANKS: Final[tuple[tuple[Where, str], ...]] = (("two-ranks", "two ranks"), ("three-ranks", "three ranks"))

FAULTS: Final = (
    Fault("worker", "kill -9 of a stage's worker", "detected < 0.2 s", "desk", kill_worker, 90, 1, kills=60),
    Fault("head-worker", "kill -9 of the head's worker", "detected < 0.2 s", "desk", kill_own_worker, 60, 1, kills=45),
    Fault("node", "kill -9 of a member's node", "detected < 0.2 s", "desk", kill_node, 50, 1, whole=False, kills=35),
    Fault("head", "kill -9 of the head's node, started again", "continued", "desk", kill_head, 8, 1, kills=16),
    Fault("heads", "kill -9 under one of two heads", "both answers equal", "desk", two_heads, 8, kills=22),
    Fault("session", "kill -9 while a session is loaded", "it goes on", "desk", kill_at_load_of_session, 8, kills=22),
    Fault("stream", "kill -9 under an API's stream", "same words, once", "desk", kill_under_stream, 30, whole=False),
    Fault("pause-1s", "SIGSTOP of a member, 1 s", "no failover", "desk", short_pause, 5, 1),
    Fault("pause-worker", "SIGSTOP of a stage's worker, 1 s", "no failover", "desk", pause_worker, 5),
    Fault("pause-2s", "SIGSTOP of a member, 2 s", "answer equal", "desk", partial(pause, seconds=2.0), 5),
    Fault("pause-10s", "SIGSTOP of a member, 10 s", f"{DEAD}, also when it wakes", "desk", long_pause, 4),
    Fault("disk-save", "disk full at a save", "old file intact, clear reason", "desk", full_disk_at_save, 3),
    Fault("disk-log", "disk full at the token log", "clear reason", "desk", full_disk_at_log, 3),
    Fault("half-open", "nothing passes to or from a Mac, 6 s", BACK, "lan", half_open, 4, 1),
    Fault("cable", "a Mac's cable is pulled, 6 s", BACK, "lan", pulled, 4),
    Fault("loss", "3 % of frames lost", NO_LOSS, "lan", partial(bad_line, fate=Fate(loss=0.03), moment="decode"), 4),
    Fault(
        "jitter", "50 ms of jitter", NO_LOSS, "lan",
        partial(bad_line, fate=Fate(delay_s=0.05, jitter_s=0.05), moment="decode"), 4,
    ),
    Fault("slow", "10 Mbit/s", NO_LOSS, "lan", partial(bad_line, fate=Fate(rate=1.25e6), moment="prefill"), 4),
    Fault("flip", "a bit flips", LINK, "lan", partial(spoilt, fault="flip", moment="decode"), 5, 1),
    Fault("duplicate", "a record comes twice", LINK, "lan", partial(spoilt, fault="duplicate", moment="decode"), 5),
    Fault("reorder", "two records change places", LINK, "lan", partial(spoilt, fault="reorder", moment="prefill"), 5),
    Fault("truncate", "a record is cut short", LINK, "lan", partial(spoilt, fault="truncate", moment="prefill"), 5),
    Fault("needed", "the cable of a Mac that none can replace", "waits, ready < 5 s after", "pair", pulled_alone, 4),
    Fault("clocks", "clocks 10 years off, Bonjour flaps", "no effect", "skewed", wrong_clocks, 4),
    Fault("worker-mirrored", "kill -9 of a stage's worker, mirrored", AGAIN, "mirrored", kill_worker, 10, kills=20),
    Fault("head-mirrored", "kill -9 of the head's worker, mirrored", AGAIN, "mirrored", kill_own_worker, 8, kills=15),
    Fault(
        "node-mirrored", "kill -9 of a member's node, mirrored", AGAIN, "mirrored", kill_node, 8, whole=False, kills=15
    ),
    *(
        Fault(f"{name}-{where}", f"kill -9 of {what}, {words}", HANGS, where, run, count, kills=count)
        for where, words in OF_RANKS
        for name, what, run, count in BY_RANKS
    ),
)  # fmt: skip
