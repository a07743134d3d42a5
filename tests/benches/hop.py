"""Cost of a sealed hop of 8 KiB from array to array, there and back, between two processes.

Sealed and raw TCP take turns in the same two processes on the same machine, so that noise hits both. CPU is that of all
threads of a process over a turn: each side sends once and receives once per round trip.
"""

from __future__ import annotations

import argparse
import socket
import sys
from collections.abc import Sequence
from statistics import median
from time import perf_counter
from typing import Final

import mlx.core as mx

from core.bench.results import cores, end_in_order, positive, system
from core.link.arrays import decode_arrays, encode_arrays
from core.link.data_link import Receiver, Sender
from core.link.frames import FrameType
from core.local.hop_rounds import (
    MAX_CPU_RATIO,
    PAYLOAD_BYTES,
    REQUEST,
    WAIT_S,
    HopLane,
    RawLane,
    Round,
    SealedLane,
    cpu_ratio,
    fill,
    play_rounds,
)
from tests.benches.figures import medians, reach
from tests.benches.results import Result, print_result

MEANING: Final = {
    "sealed": "array to array, TLS and seal",
    "raw": "array to array, plain TCP",
    "memory_sealed": "memory to memory, TLS and seal",
    "memory_raw": "memory to memory, plain TCP",
}


class TimedLane(SealedLane):
    """The sealed lane, with the time of each part of a hop at this end. Its links carry other lanes, too."""

    def __init__(self, sender: Sender, receiver: Receiver) -> None:
        super().__init__(sender, receiver)
        self._hops, self._spent_s = 0, dict.fromkeys(("codec", "seal", "send", "open"), 0.0)

    def send(self) -> None:
        started, stats = perf_counter(), self._sender.stats
        parts = encode_arrays([self._array])
        self._spent_s["codec"] += perf_counter() - started
        seal_s, send_s = stats.seal_s, stats.send_s
        self._sender.send(FrameType.ACTIVATION, request_id=REQUEST, rows=1, layers=(0, 1), plan_gen=1, parts=parts)
        self._spent_s["seal"] += stats.seal_s - seal_s
        self._spent_s["send"] += stats.send_s - send_s
        self._hops += 1

    def receive(self) -> None:
        open_s = self._receiver.stats.open_s
        body = self._receiver.recv(WAIT_S).body
        started = perf_counter()
        (self._array,) = decode_arrays(body)
        mx.eval(self._array)
        self._spent_s["codec"] += perf_counter() - started
        self._spent_s["open"] += self._receiver.stats.open_s - open_s

    @property
    def parts_us(self) -> dict[str, float]:
        """Microseconds per hop, wall clock. TLS is inside `send`; its other half is in recv."""
        return {name: 1e6 * spent / self._hops for name, spent in self._spent_s.items()}


class SealedMemory:
    """The same number of bytes over the real data links, from memory to memory."""

    def __init__(self, sender: Sender, receiver: Receiver) -> None:
        self._sender, self._receiver = sender, receiver
        self._room = memoryview(bytearray(PAYLOAD_BYTES))

    def send(self) -> None:
        self._sender.send(
            FrameType.ACTIVATION, request_id=REQUEST, rows=1, layers=(0, 1), plan_gen=1, parts=[self._room]
        )

    def receive(self) -> None:
        self._receiver.recv(WAIT_S)


class RawMemory:
    """The same number of bytes over plain TCP, from memory to memory."""

    def __init__(self, out: socket.socket, into: socket.socket) -> None:
        self._out, self._into = out, into
        self._room = memoryview(bytearray(PAYLOAD_BYTES))

    def send(self) -> None:
        self._out.sendall(self._room)

    def receive(self) -> None:
        fill(self._into, self._room)


class AllLanes:
    """Makes the lanes of arrays, and those from memory to memory: waking MLX costs as much as a whole plain hop."""

    timed: TimedLane  # this process's end

    def __call__(
        self, sender: Sender, receiver: Receiver, out: socket.socket, into: socket.socket
    ) -> dict[str, HopLane]:
        self.timed = TimedLane(sender, receiver)
        return {
            "sealed": self.timed,
            "raw": RawLane(out, into),
            "memory_sealed": SealedMemory(sender, receiver),
            "memory_raw": RawMemory(out, into),
        }


class HopResult(Result, frozen=True, kw_only=True):
    """Medians over `rounds`, which holds one turn of every lane each. Times in microseconds.

    `parts_us` are wall clock of a hop on the sealed lane, the leader's mean; TLS is part of `send`, and its other half
    of the waiting.
    """

    hops: int
    cpu_us_per_side: dict[str, float]
    rtt_us_p50: dict[str, float]
    parts_us: dict[str, float]
    rounds: list[Round]


def measure(rounds: int, hops: int) -> HopResult:
    """`rounds` times `hops` hops there and back on every lane. Raises LinkError or WorkerError."""
    lanes = AllLanes()
    played = play_rounds(rounds, hops, lanes)
    return summary(played, hops, lanes.timed.parts_us)


def summary(rounds: list[Round], hops: int, parts_us: dict[str, float]) -> HopResult:
    """Medians over rounds; a ratio is the median of the ratios within a round."""
    ratios = {
        "sealed_over_raw_cpu": cpu_ratio(rounds),
        "memory_sealed_over_raw_cpu": median(r["memory_sealed"].side_us / r["memory_raw"].side_us for r in rounds),
        "sealed_over_raw_rtt": median(r["sealed"].rtt_us / r["raw"].rtt_us for r in rounds),
    }
    return HopResult(
        ratios=ratios,
        reach={"sealed_over_raw_cpu": reach(ratios["sealed_over_raw_cpu"], at_most=MAX_CPU_RATIO)},
        cores=cores(),
        system=system(),
        hops=hops,
        cpu_us_per_side=medians([{lane: turn.side_us for lane, turn in r.items()} for r in rounds]),
        rtt_us_p50=medians([{lane: turn.rtt_us for lane, turn in r.items()} for r in rounds]),
        parts_us=parts_us,
        rounds=rounds,
    )


def describe(result: HopResult) -> str:
    """The result for people."""
    name = "sealed_over_raw_cpu"
    cpu, rtt = result.cpu_us_per_side, result.rtt_us_p50
    table = [f"  {lane:14} {cpu[lane]:8.1f} {rtt[lane]:8.1f}   {MEANING[lane]}" for lane in MEANING]
    parts = ", ".join(f"{part} {spent:.1f}" for part, spent in result.parts_us.items())
    return "\n".join(
        [
            f"One hop of {PAYLOAD_BYTES} bytes there and back between two processes; {result.system}, "
            f"{result.cores} cores; medians of {len(result.rounds)} rounds of {result.hops} hops, lanes taking turns.",
            "",
            "  µs             CPU/side  RTT p50",
            *table,
            "",
            f"  sealed, µs of a hop by the clock: {parts} (TLS lies in send and in the waiting)",
            f"  CPU per side without arrays, sealed over raw: {result.ratios['memory_sealed_over_raw_cpu']:.2f}",
            result.verdict(name, "CPU per side, sealed over raw"),
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of this bench."""
    parser = argparse.ArgumentParser(prog="macluster bench hop", description="What a sealed hop of 8 KiB costs.")
    parser.add_argument("--rounds", type=positive, default=11, help="rounds to take medians of (default %(default)s)")
    parser.add_argument("--hops", type=positive, default=1000, help="hops a lane and round (default %(default)s)")
    return print_result(parser, lambda args: measure(args.rounds, args.hops), describe, arguments)


if __name__ == "__main__":
    end_in_order()
    sys.exit(main())
