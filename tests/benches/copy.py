"""Speed of a sealed copy of a model between two nodes on loopback, against the same bytes by plain TCP.

Both sides take turns on the same disk. The nodes copy as for `macluster copy`, with a SHA-256 of each block and file. A
process sends the same files to another one through a socket, which writes them and syncs as often. The nodes know the
hashes of the source's files and blocks already, as after a first copy.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, Final

import msgspec

from core.bench.results import cores, end_in_order, positive, system
from core.errors import TransferError, error_from
from core.events import Transfer
from core.local.second_process import SecondProcess, second_process
from core.models.files.block_writer import COMMIT_BYTES
from core.requests.disks import CopyRequest
from core.requests.plans import ModelChoice
from core.settings import LOOPBACK_HOST, MIB
from core.trust.private_files import to_disk
from tests.benches.figures import reach
from tests.benches.results import Result, print_result
from tui.cli.demo import Demo, DemoConfig
from tui.cli.made_model import made_llama
from tui.cli.watch import Watch

REACH: Final = 0.7
TURN_S: Final = 600.0
LISTED_S: Final = 60.0


class CopyTurn(msgspec.Struct, frozen=True, kw_only=True):
    """Both sides once: seconds."""

    sealed_s: float
    plain_s: float


class CopyResult(Result, frozen=True, kw_only=True):
    """Medians over `rounds`, of `bytes` bytes each."""

    bytes: int
    sealed_mb_per_s: float
    plain_mb_per_s: float
    rounds: list[CopyTurn]


def measure(rounds: int, layers: int) -> CopyResult:
    """Copy `rounds` times on each side. Raises TransferError, WorkerError and errors of the nodes."""
    with (
        TemporaryDirectory(prefix="macluster-copy-") as folder,
        second_process(send_plain) as out,
        second_process(take_plain) as into,
    ):
        model = Path(folder) / "model"
        made_llama(model, layers, hidden=1024, dtype="float32")
        turns = asyncio.run(_turns(model, Path(folder) / "plain", rounds, (out, into)))
        return summary(turns, sum(file.stat().st_size for file in model.iterdir()))


async def _turns(model: Path, plain: Path, rounds: int, ends: tuple[SecondProcess, SecondProcess]) -> list[CopyTurn]:
    config = DemoConfig(budgets_gb=(1.0, 1.0), model=model, remote_weights=True, multicast=False, has_spare=False)
    demo = Demo(config, lambda _: None)
    try:
        await demo.start()
        await demo.join()
        await _sealed(demo, model)  # from here on the head knows the hashes of its files and blocks
        turns = []
        for number in range(rounds):
            sides = {"sealed_s": lambda: _sealed(demo, model), "plain_s": lambda: _plain(model, plain, *ends)}
            order = list(sides) if number % 2 else list(sides)[::-1]
            turns.append(CopyTurn(**{side: await sides[side]() for side in order}))
        return turns
    finally:
        await demo.stop()


async def _sealed(demo: Demo, model: Path) -> float:
    """The seconds of a copy, which is deleted."""
    head, other = demo.watches
    own, mac = (next(peer.device_id for peer in watch.now.peers if peer.is_self) for watch in demo.watches)
    choice = await _listed(head, model.name, (own,))
    await _listed(other, model.name, (own,))  # copies nothing before it knows of it
    mark, began = len(head.seen), monotonic()
    await head.client.copy(CopyRequest(fingerprint=choice.fingerprint, to=(mac,)))

    def ended() -> Transfer | None:
        found = (each for each in head.seen[mark:] if isinstance(each, Transfer) and each.mac == mac)
        return next((each for each in found if each.is_over), None)

    await head.until(lambda _: ended() is not None, TURN_S, "The copy")
    spent, last = monotonic() - began, ended()
    if last is None or last.state != "done":
        raise error_from(last.problem) if last and last.problem else TransferError("The copy was stopped.")
    await _listed(head, model.name, (own, mac))
    (copied,) = (Path(each.path) for each in await other.client.models() if each.fingerprint == choice.fingerprint)
    await asyncio.to_thread(shutil.rmtree, copied)
    await _listed(head, model.name, (own,))
    return spent


async def _listed(watch: Watch, name: str, held_by: tuple[str, ...]) -> ModelChoice:
    """Wait until that node lists the model on exactly these disks."""
    until = monotonic() + LISTED_S
    while monotonic() < until:
        for choice in await watch.client.models():
            if choice.name == name and set(choice.held_by) == set(held_by):
                return choice
        count = len(watch.seen)
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await watch.until(lambda w: len(w.seen) > count, LISTED_S, "The list of models")  # noqa: B023
    raise TransferError(f"{name} was not listed as it lies on the disks.")


async def _plain(model: Path, into: Path, out: SecondProcess, taking: SecondProcess) -> float:
    """The seconds until all files lie in `into`, which is deleted."""
    return await asyncio.to_thread(_copy_plain, model, into, out, taking)


def _copy_plain(model: Path, into: Path, out: SecondProcess, taking: SecondProcess) -> float:
    into.mkdir()
    files = sorted(model.iterdir())
    try:
        taking.send([(str(into / file.name), file.stat().st_size) for file in files])
        port = taking.receive(TURN_S)
        began = monotonic()
        out.send((port, [str(file) for file in files]))
        taking.receive(TURN_S)
        return monotonic() - began
    finally:
        shutil.rmtree(into)


def send_plain(pipe: Connection[Any, Any]) -> None:
    """A process that sends files to a port."""
    while True:
        port, paths = pipe.recv()
        with socket.create_connection((LOOPBACK_HOST, port)) as sock:
            for path in paths:
                with Path(path).open("rb") as file:
                    while piece := file.read(MIB):
                        sock.sendall(piece)


def take_plain(pipe: Connection[Any, Any]) -> None:
    """A process that writes received bytes to files, by paths and sizes; it reports its port and the end."""
    room = memoryview(bytearray(MIB))
    while True:
        files = pipe.recv()
        with socket.create_server((LOOPBACK_HOST, 0)) as door:
            pipe.send(door.getsockname()[1])
            sock, _ = door.accept()
        with sock:
            for path, size in files:
                _take_file(sock, Path(path), size, room)
        pipe.send(None)


def _take_file(sock: socket.socket, path: Path, size: int, room: memoryview) -> None:
    due = COMMIT_BYTES
    with path.open("wb", buffering=0) as file:
        os.ftruncate(file.fileno(), size)
        done = 0
        while done < size:
            count = sock.recv_into(room[: size - done])
            if not count:
                raise ConnectionError("the sender is gone")
            file.write(room[:count])
            done += count
            if done >= due:
                to_disk(file.fileno())
                due += COMMIT_BYTES
        to_disk(file.fileno())


def summary(turns: list[CopyTurn], nbytes: int) -> CopyResult:
    """Medians over rounds; the ratio of the speeds is the median of the ratios within a round."""
    ratio = median(turn.plain_s / turn.sealed_s for turn in turns)
    return CopyResult(
        ratios={"sealed_over_plain": ratio},
        reach={"sealed_over_plain": reach(ratio, at_least=REACH)},
        cores=cores(),
        system=system(),
        bytes=nbytes,
        sealed_mb_per_s=median(nbytes / 1e6 / turn.sealed_s for turn in turns),
        plain_mb_per_s=median(nbytes / 1e6 / turn.plain_s for turn in turns),
        rounds=turns,
    )


def describe(result: CopyResult) -> str:
    """The result for people."""
    return "\n".join(
        [
            f"A copy of {result.bytes / 1e6:.0f} MB from disk to disk; {result.system}, {result.cores} cores; medians "
            f"of {len(result.rounds)} rounds, sides taking turns.",
            "",
            f"  plain TCP, written and forced to disk     {result.plain_mb_per_s:7.1f} MB/s",
            f"  between two nodes, sealed and checked     {result.sealed_mb_per_s:7.1f} MB/s",
            "",
            result.verdict("sealed_over_plain", "Speed, sealed over plain"),
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of this bench."""
    parser = argparse.ArgumentParser(prog="macluster bench copy", description="How quick a sealed copy is.")
    parser.add_argument("--rounds", type=positive, default=5, help="rounds to take medians of (default %(default)s)")
    parser.add_argument("--layers", type=positive, default=10, help="of 54 MB each (default %(default)s)")
    return print_result(parser, lambda args: measure(args.rounds, args.layers), describe, arguments)


if __name__ == "__main__":
    end_in_order()
    sys.exit(main())
