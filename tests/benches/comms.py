"""Cost of adding up for the ranks of a tensor plan: two reduces per layer and token, sealed and plain.

Four processes of this machine form two groups of MLX's ring: the connections of one go through sealed tunnels, those of
the other are its own plain TCP. They reduce a vector of bfloat16 in turns, one reduce at a time, as in a decode of one
row; nothing else is computed, so no model of that shape exceeds `ceiling_tokens_per_s`.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final, NamedTuple

import mlx.core as mx
import msgspec

from core.bench.results import cores, end_in_order, positive, system
from core.events import Plan
from core.link.data_plane import listen
from core.link.network_paths import NetworkPath
from core.link.rekey_limits import KEY_LIMITS
from core.local.bare_worker import HOST
from core.local.macs import make_macs
from core.local.plans import digest_of
from core.local.second_process import SecondProcess, Work, second_process
from core.models.files.sharding import REDUCES_A_LAYER
from core.models.metal import obey_device
from core.trust.identity import open_identity
from core.worker.group import open_group
from core.worker.group_init import Group, init_group
from core.worker.group_variables import ring_variables
from core.worker.messages import Connect
from core.worker.neighbours import Neighbours
from core.worker.ring import Ring
from core.worker.telemetry import StageMeter
from tests.benches.figures import reach
from tests.benches.results import Result, print_result
from tests.support.worker_ring import tensor_plan_of

REACH: Final = 1.5
WAYS: Final = {"sealed": "through the sealed group", "plain": "in the open, plain TCP"}
MEET_S: Final = 60.0
TURN_S: Final = 600.0
WARM_UP_TOKENS: Final = 2
RANKS: Final = 2
NUMBER: Final = 1.234375  # initial value of every element


class Seat(NamedTuple):
    """Values that a rank of the sealed group needs: its key, its place in the plan, the cluster."""

    plan: Plan
    rank: int
    folder: Path
    passphrase: bytes
    cluster: bytes


class ReduceTurn(NamedTuple):
    """A turn of `tokens` tokens with `reduces` reduces each, of `hidden` numbers."""

    tokens: int
    reduces: int
    hidden: int


class CommsResult(Result, frozen=True, kw_only=True):
    """Medians over `rounds`, with one turn of every way each: milliseconds per token and per reduce.
    `bytes_a_token`: bytes added up per token.
    """

    hidden: int
    layers: int
    tokens: int
    reduces_a_token: int
    bytes_a_token: int
    ms_a_token: dict[str, float]
    ms_a_reduce: dict[str, float]
    ceiling_tokens_per_s: dict[str, float]
    rounds: list[dict[str, float]]


def measure(rounds: int, hidden: int, layers: int, tokens: int) -> CommsResult:
    """`rounds` turns of every way. Raises WorkerError or WorkerDied."""
    turn = ReduceTurn(tokens, REDUCES_A_LAYER * layers, hidden)
    with ExitStack() as stack:
        ways = {"sealed": stack.enter_context(sealed_group()), "plain": stack.enter_context(plain_group(plain_rank))}
        for ranks in ways.values():
            play(ranks, turn._replace(tokens=WARM_UP_TOKENS))
        played = []
        for number in range(rounds):
            order = list(ways) if number % 2 == 0 else list(ways)[::-1]
            spent = {way: 1e3 * play(ways[way], turn) / tokens for way in order}
            played.append({way: spent[way] for way in WAYS})
        return summary(played, turn, layers)


def play(ranks: Sequence[SecondProcess], turn: ReduceTurn) -> float:
    """One turn of a group: the seconds of the slower rank."""
    for rank in ranks:
        rank.send(turn)
    return max(float(rank.receive(TURN_S)) for rank in ranks)


@contextmanager
def _ranks(work: Work) -> Iterator[list[SecondProcess]]:
    with ExitStack() as stack:
        yield [stack.enter_context(second_process(work)) for _ in range(RANKS)]


@contextmanager
def sealed_group() -> Iterator[list[SecondProcess]]:
    """Two processes with a group whose connections go through tunnels, ready for turns."""
    with TemporaryDirectory(prefix="macluster-comms-") as folder, _ranks(sealed_rank) as ranks:
        macs = make_macs(Path(folder), RANKS)
        plan = tensor_plan_of("reduces", 1, macs)
        for index, (rank, mac) in enumerate(zip(ranks, macs.identities, strict=True)):
            rank.send(Seat(plan, index, mac.key_path.parent, mac.passphrase, macs.cluster.encode()))
        ports = [int(rank.receive(MEET_S)) for rank in ranks]
        for index, rank in enumerate(ranks):
            rank.send(ports[(index + 1) % RANKS])
        yield _ready(ranks)


@contextmanager
def plain_group(work: Work) -> Iterator[list[SecondProcess]]:
    """As `sealed_group`, plain. Each process runs `work`, receives its rank and the host file, and reports when it is
    ready.
    """
    with TemporaryDirectory(prefix="macluster-comms-") as folder, _ranks(work) as ranks:
        hosts = Path(folder) / "hosts.json"
        hosts.write_bytes(msgspec.json.encode([[f"{HOST}:{port}"] for port in _free_ports()]))
        for index, rank in enumerate(ranks):
            rank.send((index, hosts))
        yield _ready(ranks)


def _free_ports() -> list[int]:
    with ExitStack() as stack:
        doors = [stack.enter_context(socket.create_server((HOST, 0))) for _ in range(RANKS)]
        return [int(door.getsockname()[1]) for door in doors]


def _ready(ranks: list[SecondProcess]) -> list[SecondProcess]:
    for rank in ranks:
        rank.receive(MEET_S)
    return ranks


def sealed_rank(pipe: Connection[Any, Any]) -> None:
    """A process of the sealed group."""
    obey_device()
    seat: Seat = pipe.recv()
    with listen(HOST) as listener:
        pipe.send(listener.getsockname()[1])
        told = Connect(
            plan=seat.plan,
            digest=digest_of(seat.plan),
            cluster=seat.cluster,
            ways=(NetworkPath(HOST),),
            next_port=pipe.recv(),
        )
        identity = open_identity(seat.folder, seat.passphrase)
        neighbours = Neighbours(told, seat.rank, listener, identity, row_bytes=0)
        ring = Ring(neighbours, StageMeter(seat.rank), KEY_LIMITS)
        _take_turns(pipe, open_group("sealed", ring, lambda _: os._exit(1)).group)


def plain_rank(pipe: Connection[Any, Any]) -> None:
    """A process of the group in the open."""
    obey_device()
    index, hosts = pipe.recv()
    _take_turns(pipe, init_group("ring", ring_variables(index, hosts), RANKS))


def _take_turns(pipe: Connection[Any, Any], group: Group) -> None:
    """Until the bench is over; a rank whose partner is gone would wait for ever to end in order."""
    pipe.send(None)
    try:
        while True:
            turn: ReduceTurn = pipe.recv()
            pipe.send(_reduce(group, turn))
    except (EOFError, ConnectionError):
        os._exit(0)


def _reduce(group: Group, turn: ReduceTurn) -> float:
    """The seconds of a turn."""
    began = perf_counter()
    for _ in range(turn.tokens):
        state = mx.full((1, 1, turn.hidden), NUMBER, mx.bfloat16)
        for _ in range(turn.reduces):
            state = mx.distributed.all_sum(state, group=group)
        mx.eval(state)
    return perf_counter() - began


def summary(rounds: list[dict[str, float]], turn: ReduceTurn, layers: int) -> CommsResult:
    """Medians over rounds of milliseconds a token; the ratio is the median of the ratios within a round."""
    ratio = median(each["sealed"] / each["plain"] for each in rounds)
    token = {way: median(each[way] for each in rounds) for way in WAYS}
    return CommsResult(
        ratios={"sealed_over_plain_reduce": ratio},
        reach={"sealed_over_plain_reduce": reach(ratio, at_most=REACH)},
        cores=cores(),
        system=system(),
        hidden=turn.hidden,
        layers=layers,
        tokens=turn.tokens,
        reduces_a_token=turn.reduces,
        bytes_a_token=turn.reduces * turn.hidden * mx.bfloat16.size,
        ms_a_token=token,
        ms_a_reduce={way: spent / turn.reduces for way, spent in token.items()},
        ceiling_tokens_per_s={way: 1e3 / spent for way, spent in token.items()},
        rounds=rounds,
    )


def describe(result: CommsResult) -> str:
    """The result for people."""
    lines = [
        f"  {way:8} {result.ms_a_token[way]:9.2f} {result.ms_a_reduce[way]:12.3f} "
        f"{result.ceiling_tokens_per_s[way]:18.1f}   {meaning}"
        for way, meaning in WAYS.items()
    ]
    return "\n".join(
        [
            f"{result.reduces_a_token} reduces a token ({result.layers} layers, {result.hidden} wide) between "
            f"{RANKS} processes, {result.bytes_a_token / 1e6:.2f} MB a token; {result.system}, {result.cores} cores; "
            f"medians of {len(result.rounds)} rounds of {result.tokens} tokens, ways taking turns.",
            "",
            "           ms a token  ms a reduce  at most, tokens/s",
            *lines,
            "",
            result.verdict("sealed_over_plain_reduce", "A reduce, sealed over plain"),
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of this bench."""
    parser = argparse.ArgumentParser(prog="macluster bench comms", description="What adding up costs ranks.")
    parser.add_argument("--rounds", type=positive, default=5, help="rounds to take medians of (default %(default)s)")
    parser.add_argument("--hidden", type=positive, default=5120, help="numbers of a vector (default %(default)s)")
    parser.add_argument("--layers", type=positive, default=40, help="of the model (default %(default)s)")
    parser.add_argument("--tokens", type=positive, default=64, help="tokens a round (default %(default)s)")
    return print_result(
        parser, lambda args: measure(args.rounds, args.hidden, args.layers, args.tokens), describe, arguments
    )


if __name__ == "__main__":
    end_in_order()
    sys.exit(main())
