"""Models on disks, and transfers to them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from core.errors import UsageError
from core.events import Peer, Snapshot, Transfer
from core.requests.plans import ModelChoice, PlanPreview
from core.text import clean_text
from tui.state.format import clock, is_ready, plural
from tui.state.progress_rate import BAR, bar, byte_words


class Copies(NamedTuple):
    """Macs that lack a model, this one first, as device ids and names."""

    to: tuple[str, ...]
    names: str


def names_of(now: Snapshot, device_ids: Iterable[str]) -> str:
    names = [_name(now, device_id) for device_id in device_ids]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _name(now: Snapshot, device_id: str) -> str:
    peer = next((p for p in now.peers if p.device_id == device_id), None)
    return "this Mac" if peer and peer.is_self else peer.name if peer else device_id[:8]


def own_id(now: Snapshot) -> str:
    return next((p.device_id for p in now.peers if p.is_self), "")


def _macs(now: Snapshot) -> list[Peer]:
    return [p for p in now.peers if is_ready(p)]


def disk_words(choice: ModelChoice, now: Snapshot) -> str:
    """ "yes", "on 2 of 3", "on mbp", "partial", or the progress: "↓ 43 %"."""
    if on_way := transfers_of(choice, now):
        arrow = "↓" if on_way[0].mac == own_id(now) else "↑"
        done, total = sum(t.done for t in on_way), sum(t.total for t in on_way)
        return f"{arrow} {100 * done // total} %" if total else f"{arrow} …"
    if not choice.layers or choice.layers_here:
        return "partial"
    macs = [p.device_id for p in _macs(now)]
    held = [mac for mac in macs if mac in choice.held_by]
    if choice.path and (len(held) == len(macs) or not choice.held_by):
        return "yes"
    if choice.path or len(held) > 1:
        return f"on {len(held)} of {len(macs)}"
    return f"on {names_of(now, held[:1])}" if held else "no"


class DiskRow(NamedTuple):
    """Layers on the disk of a Mac, as half-open ranges; `coming` is the progress of a transfer to it."""

    name: str
    ranges: tuple[tuple[int, int], ...]
    coming: str


def disk_rows(choice: ModelChoice, now: Snapshot) -> list[DiskRow]:
    parts, whole = dict(choice.layers_on), ((0, choice.layers),)
    on_way = {transfer.mac: transfer for transfer in transfers_of(choice, now)}
    macs = dict.fromkeys([*(p.device_id for p in _macs(now)), *choice.held_by, *parts])
    if not choice.layers or not (parts or (on_way and choice.held_by)):
        return []
    ranges = {mac: whole if mac in choice.held_by else parts.get(mac, ()) for mac in macs}
    return [DiskRow(_name(now, mac), ranges[mac], _coming_words(on_way.get(mac))) for mac in macs]


def _coming_words(transfer: Transfer | None) -> str:
    if transfer is None or not transfer.total:
        return ""
    return f" · {100 * transfer.done // transfer.total} % copied"


def transfers_of(choice: ModelChoice, now: Snapshot) -> list[Transfer]:
    about = [
        t for t in now.transfers if t.model == choice.name or (t.fingerprint and t.fingerprint == choice.fingerprint)
    ]
    return sorted(about, key=lambda t: t.mac != own_id(now))


def with_coming(choices: Iterable[ModelChoice], now: Snapshot) -> tuple[ModelChoice, ...]:
    listed = tuple(choices)
    known = [t for choice in listed for t in transfers_of(choice, now)]
    coming = [t for t in now.transfers if t not in known]
    named = [ModelChoice(name=t.model, path="", total_bytes=t.total, preview=PlanPreview()) for t in coming]
    return (*listed, *named)


def comes_here(now: Snapshot) -> bool:
    """Whether a transfer to this Mac is running: another download would be refused."""
    return any(each.mac == own_id(now) and each.state != "paused" and not each.is_over for each in now.transfers)


def copies_of(choice: ModelChoice, now: Snapshot) -> Copies | None:
    """Macs that could get a copy: this one if it lacks the model, else the others. None if no complete copy exists."""
    here = {layer for _, ranges in choice.layers_on for start, stop in ranges for layer in range(start, stop)}
    if not (choice.held_by or (choice.layers and len(here) == choice.layers)):
        return None
    own = own_id(now)
    lacking = [p.device_id for p in _macs(now) if p.device_id not in choice.held_by]
    to = (own,) if own in lacking else tuple(lacking)
    return Copies(to, names_of(now, to)) if to else None


def transfer_words(transfer: Transfer, now: Snapshot, width: int) -> tuple[str, str]:
    """A transfer and its progress: "copying to mbp from mini", "▇▇▁▁ 1.2/4.0 GB · 43.0 MB/s"."""
    what = _way_words(transfer, now)
    if words := waiting_words(transfer):
        return what, words
    match transfer.state:
        case "asking":
            return what, "listing files"
        case "checking":
            return what, "checking hashes"
        case _:
            words = byte_words(transfer.done, transfer.total, transfer.bytes_per_s)
            if transfer.state == "paused":
                words += " · paused"
            if limit := transfer.limit_bytes_per_s:
                words += f" (limit {megabytes(limit)} MB/s)"
            left = left_s(transfer) if transfer.state == "running" else None
            return what, bar(transfer.done, transfer.total, words, left, max(6, min(BAR, width - 52)))


def waiting_words(transfer: Transfer) -> str:
    until = transfer.waits_until
    return f"the hub takes no request before {clock(until, seconds=True)}" if until else ""


def _way_words(transfer: Transfer, now: Snapshot) -> str:
    own = own_id(now)
    if not transfer.source:
        return "downloading from the hub" + ("" if transfer.mac == own else f" to {names_of(now, [transfer.mac])}")
    source = "" if transfer.source == own else f" from {names_of(now, [transfer.source])}"
    return f"copying to {names_of(now, [transfer.mac])}{source}"


def megabytes(count: int) -> str:
    return f"{count / 1e6:g}"


def limit_of(text: str) -> int:
    """A typed limit in MB per second, as bytes per second. Raises UsageError."""
    try:
        limit = float(text)
    except ValueError:
        limit = -1.0
    if limit and not 0.001 <= limit <= 1e6:
        raise UsageError(
            f"{clean_text(text)!r:.40} is not a rate.", "Type megabytes per second, such as 10; 0 for no limit."
        )
    return int(limit * 1e6)


def left_s(transfer: Transfer) -> float | None:
    """Seconds left; None if unknown."""
    left = transfer.total - transfer.done
    return left / transfer.bytes_per_s if transfer.bytes_per_s >= 1 and left > 0 else None


def running_words(now: Snapshot) -> str:
    """The running transfers in a question: "the download of x", "the transfers to 3 Macs"."""
    first = now.transfers[0]
    if len(now.transfers) == 1:
        return f"the {'copy' if first.source else 'download'} of {first.model}"
    return f"the transfers to {plural(len(now.transfers), 'Mac')}"
