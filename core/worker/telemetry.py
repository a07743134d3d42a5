"""Where the time of a stage goes, measured on the stage's own clock only, so clock skew cannot matter."""

from __future__ import annotations

from time import perf_counter
from types import TracebackType

from core.link.channel import Receiver, Sender
from core.worker.messages import StageSample


class Stopwatch:
    """Adds the time spent inside `with` to `seconds`."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._since = 0.0

    def __enter__(self) -> Stopwatch:
        self._since = perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds += perf_counter() - self._since


class StageMeter:
    """The counters of one stage for the current request."""

    def __init__(self, index: int) -> None:
        self._index = index
        self.compute = Stopwatch()
        self.codec = Stopwatch()
        self.wait = Stopwatch()

    def start(self, sender: Sender, receiver: Receiver) -> None:
        """A new request begins: count from zero."""
        self.compute.seconds = self.codec.seconds = self.wait.seconds = 0.0
        sender.stats.reset()
        receiver.stats.reset()

    def sample(self, sender: Sender, receiver: Receiver, renewals: int) -> StageSample:
        """The counters so far."""
        sent, received = sender.stats, receiver.stats
        return StageSample(
            index=self._index,
            frames=sent.frames,
            bytes=sent.bytes,
            compute_s=self.compute.seconds,
            codec_s=self.codec.seconds,
            seal_s=sent.seal_s,
            send_s=sent.send_s,
            wait_s=self.wait.seconds + received.wait_s,
            open_s=received.open_s,
            queue=int(receiver.pending()),
            key=sender.key.use,
            renewals=renewals,
        )
