"""Find the process that listens on a TCP port, if this account may see it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import psutil

from core.text import clean_text

UNKNOWN = "a system program, or one of another account"


def port_holder(port: int) -> str:
    pid = next((pid for taken, pid in _listeners() if taken == port), None)
    if pid is None:
        return UNKNOWN
    try:
        process = psutil.Process(pid)
        return holder_words(pid, process.name(), process.cmdline())
    except psutil.Error:
        return f"pid {pid}"


def holder_words(pid: int, name: str, command: Iterable[str]) -> str:
    words = [_in_line(word) for word in command]
    if "core.node" in words:
        home = words[words.index("--home") + 1 :][:1] if "--home" in words else []
        return f"another macluster node (pid {pid}{''.join(f', {each}' for each in home)})"
    return f"{_in_line(name)} (pid {pid})"


def _in_line(text: str) -> str:
    return " ".join(clean_text(text).split())


def _listeners() -> Iterator[tuple[int, int | None]]:
    try:
        found = [(each.laddr, each.pid, each.status) for each in psutil.net_connections("tcp")]
    except psutil.AccessDenied:
        found = [(each.laddr, pid, each.status) for pid in psutil.pids() for each in _connections(pid)]
    for address, pid, status in found:
        if address and status == psutil.CONN_LISTEN:
            yield address.port, pid


def _connections(pid: int) -> list[psutil._ntuples.pconn]:
    try:
        return psutil.Process(pid).net_connections("tcp")
    except psutil.Error:
        return []
