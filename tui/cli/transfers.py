"""`macluster download`, `copy` and `transfers`: models on their way to disks."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from core.errors import DoesNotFit, TransferError, UsageError, error_from
from core.events import Transfer
from core.requests.disks import CopyRequest, DownloadRequest, TransferChange, TransferOrder
from core.requests.plans import ModelChoice, PlanRequest, PreviewRequest
from core.text import clean_text
from core.trust.name_matching import pick
from tui.cli.asking import choice_of
from tui.cli.launch import home_of
from tui.cli.output import print_facts, print_progress, prints_facts
from tui.cli.watch import Watch, watching
from tui.state.disks import names_of, own_id, transfer_words
from tui.state.format import is_ready
from tui.state.load_options import download_of
from tui.state.state import cleaned

_WIDTH = 80
_CHANGES: Final[dict[TransferChange, str]] = {
    "pause": "pause a transfer and keep what has arrived",
    "resume": "resume a paused transfer",
    "stop": "stop a transfer; the next download or copy continues from what has arrived",
    "limit": "limit the rate from now on",
}


def add_download(command: argparse.ArgumentParser) -> None:
    command.add_argument("repo", metavar="REPO", help="a repository on the hub: owner/name")
    which = command.add_mutually_exclusive_group()
    whole = "download the whole model to this Mac (default without a terminal)"
    which.add_argument("--whole", action="store_true", help=whole)
    which.add_argument("--split", action="store_true", help="give each Mac only its own layers")
    command.add_argument("--revision", default="main", help="a branch, a tag or a commit (default %(default)s)")
    command.add_argument("--limit", type=_limit, default=0, metavar="MB", help="limit for each Mac, in MB/s")
    seems = "download the whole model even if the disk seems too full, as macOS frees purgeable space later"
    command.add_argument("--anyway", action="store_true", help=seems)


def add_copy(command: argparse.ArgumentParser) -> None:
    command.add_argument("model", metavar="MODEL", help="a name from `macluster models`")
    to = "copy to this Mac (default: to all that lack it)"
    command.add_argument("--to", action="append", default=[], metavar="MAC", help=to)
    command.add_argument("--split", action="store_true", help="give each Mac only its own layers")
    command.add_argument("--limit", type=_limit, default=0, metavar="MB", help="limit for each Mac, in MB/s")


def add_transfers(command: argparse.ArgumentParser) -> None:
    prints_facts(command, transfers)
    sub = command.add_subparsers(dest="what", metavar="pause|resume|stop|limit")
    for what, words in _CHANGES.items():
        change = sub.add_parser(what, help=words)
        if what == "limit":
            change.add_argument("limit", type=_limit, metavar="MB", help="limit for each Mac, in MB/s")
        to = "only transfers to this Mac (default: all)"
        change.add_argument("--to", action="append", default=[], metavar="MAC", help=to)
        prints_facts(change, change_transfers)


def _limit(text: str) -> int:
    """Parse MB/s into bytes/s for argparse; 0 means no limit."""
    limit = float(text) * 1e6
    if limit and not 1e3 <= limit <= 1e12:
        raise argparse.ArgumentTypeError("must be between 0.001 and 1000000, or 0 for no limit")
    return int(limit)


async def download(args: argparse.Namespace) -> None:
    """Download a model to this Mac, or to each Mac its layers; Ctrl+C stops, the same command continues."""
    asked = download_of(args.repo, args.revision)
    request = msgspec.structs.replace(asked, bytes_per_s=args.limit, anyway=args.anyway)
    async with watching(home_of(args)) as watch:
        if args.split or (not args.whole and await _wants_split(watch, request.repo)):
            return await _download_split(watch, args, request)
        done = await _to_its_end(watch, lambda: watch.client.download(request), {own_id(watch.now)})
        print_facts(args, done, [f"{request.repo} is on this Mac's disk."])


async def _wants_split(watch: Watch, repo: str) -> bool:
    """Ask the user whether to split the download; False without a terminal or with one Mac."""
    macs = [peer.name for peer in watch.now.peers if is_ready(peer)]
    if len(macs) < 2 or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    split = f"split it: {', '.join(macs)} download only their own layers"
    return await choice_of({"whole": f"download all of {repo} to this Mac", "split": split}) == "split"


async def _download_split(watch: Watch, args: argparse.Namespace, request: DownloadRequest) -> None:
    begin = msgspec.structs.replace(request, split=True)
    (begun,) = await _to_its_end(watch, lambda: watch.client.download(begin), {own_id(watch.now)})
    found = [c for c in await watch.client.models() if c.path and c.fingerprint == begun.fingerprint]
    if not found:
        raise TransferError(f"{request.repo} can't be used here.", "`macluster models` says why.")
    if all(peer.device_id in found[0].held_by for peer in watch.now.peers if is_ready(peer)):
        return print_facts(args, [], [f"Every Mac already has all of {request.repo}."])
    done = await give_parts(watch, PlanRequest(model=found[0].path), everyone=True, bytes_per_s=args.limit)
    names = names_of(watch.now, [each.mac for each in done])
    compared = "The first load compares all files with the hub's hashes."
    print_facts(args, done, [f"{names}: layers of {request.repo} downloaded.", compared])


async def copy(args: argparse.Namespace) -> None:
    async with watching(home_of(args)) as watch:
        choice = _named(args.model, await watch.client.models())
        if args.split:
            wanted = PlanRequest(model=choice.path or choice.name)
            done = await give_parts(watch, wanted, args.to, bytes_per_s=args.limit)
            names = names_of(watch.now, [each.mac for each in done])
            there = f"Every Mac already has its layers of {choice.name}."
            return print_facts(args, done, [f"Copied the layers for {names}." if done else there])
        to = _targets(watch, args.to, choice)
        if not to:
            return print_facts(args, [], [f"Those Macs already have {choice.name}."])
        request = CopyRequest(fingerprint=choice.fingerprint, to=to, bytes_per_s=args.limit)
        done = await _to_its_end(watch, lambda: watch.client.copy(request), set(to))
        print_facts(args, done, [f"Copied {choice.name} to {names_of(watch.now, to)}."])


async def transfers(args: argparse.Namespace) -> None:
    async with watching(home_of(args)) as watch:
        now = watch.now
    lines = [f"{t.model}: {', '.join(transfer_words(t, now, _WIDTH))}" for t in now.transfers]
    print_facts(args, now.transfers, [clean_text(line) for line in lines] or ["No downloads or copies."])


async def change_transfers(args: argparse.Namespace) -> None:
    async with watching(home_of(args)) as watch:
        macs = [(peer.device_id, peer.name) for peer in watch.now.peers]
        to = tuple(pick(name, macs) for name in args.to)
        names = names_of(watch.now, [t.mac for t in watch.now.transfers if not to or t.mac in to])
        limit = getattr(args, "limit", 0)
        await watch.client.change_transfers(TransferOrder(what=args.what, macs=to, bytes_per_s=limit))
    reported = {"pause": "Paused", "resume": "Resumed", "stop": "Stopped", "limit": "Limited"}
    words = f"{reported[args.what]} transfers to {names}." if names else "No downloads or copies."
    print_facts(args, {"what": args.what, "macs": to}, [words])


async def give_parts(
    watch: Watch, request: PlanRequest, names: Sequence[str] = (), *, everyone: bool = False, bytes_per_s: int = 0
) -> list[Transfer]:
    """Make each Mac (or those in `names`) fetch its missing layers of the plan for `request`.

    `everyone` includes Macs that lack no layer, since they may lack the embedding or the output head. Raises the
    plan's problem, or the first problem of a copy.
    """
    preview = await watch.client.plan(PreviewRequest(**msgspec.structs.asdict(request), parts=True))
    if preview.plan is None:
        raise error_from(preview.problem) if preview.problem else DoesNotFit(f"{request.model} does not fit.")
    stages = [
        (stage.device_id, parts)
        for stage, parts in zip(preview.plan.stages, preview.parts, strict=True)
        if (everyone or stage.device_id in preview.missing_on) and (not names or stage.peer in names)
    ]
    whole = CopyRequest(fingerprint=preview.plan.fingerprint, to=(), bytes_per_s=bytes_per_s)

    async def begin() -> None:
        for mac, parts in stages:
            await watch.client.copy(msgspec.structs.replace(whole, to=(mac,), parts=parts))

    return await _to_its_end(watch, begin, {mac for mac, _ in stages}) if stages else []


def _named(name: str, choices: list[ModelChoice]) -> ModelChoice:
    found = [c for c in map(cleaned, choices) if name in (c.name, c.name.rpartition("/")[2]) and c.layers]
    if len(found) != 1:
        what = f"{len(found)} models are named {name!r}." if found else f"There is no model {name!r}."
        raise UsageError(clean_text(what), "Use a full name from `macluster models`.")
    return found[0]


def _targets(watch: Watch, wanted: list[str], choice: ModelChoice) -> tuple[str, ...]:
    macs = {p.name: p.device_id for p in watch.now.peers if is_ready(p)}
    if unknown := [name for name in wanted if name not in macs]:
        raise UsageError(f"{clean_text(unknown[0])} is not a connected Mac.", f"Connected Macs: {', '.join(macs)}.")
    chosen = [macs[name] for name in wanted] or list(macs.values())
    return tuple(mac for mac in chosen if mac not in choice.held_by)


async def _to_its_end(watch: Watch, begin: Callable[[], Awaitable[object]], macs: set[str]) -> list[Transfer]:
    """Print progress until every Mac of `macs` is done; raises the first problem."""
    mark = len(watch.seen)
    shown = Shown()
    await begin()
    try:
        while True:
            last = {t.mac: t for t in watch.seen[mark:] if isinstance(t, Transfer) and t.mac in macs}
            shown.show(watch, last)
            for transfer in last.values():
                if transfer.problem:
                    raise error_from(transfer.problem)
                if transfer.state == "stopped":
                    raise TransferError(f"{transfer.model} was stopped.", "Run the same command to continue.")
            if last.keys() == macs and all(t.is_over for t in last.values()):
                return list(last.values())
            count = len(watch.seen)
            await watch.until(lambda w: len(w.seen) > count, 3600.0, "The transfer")  # noqa: B023
    except asyncio.CancelledError:
        await watch.client.change_transfers(TransferOrder(what="stop"))
        raise


class Shown:
    """Progress lines on standard error, printed when they change."""

    def __init__(self) -> None:
        self._lines: dict[str, str] = {}

    def show(self, watch: Watch, last: dict[str, Transfer]) -> None:
        for mac, transfer in last.items():
            what, how_far = transfer_words(transfer, watch.now, _WIDTH)
            line = clean_text(f"{what}: {how_far}")
            if not transfer.is_over and line != self._lines.get(mac):
                self._lines[mac] = line
                print_progress(line)
