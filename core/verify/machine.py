"""Checks of what macOS does for macluster; each asks the machine itself."""

from __future__ import annotations

import os
import secrets
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from core.link.network_paths import RANKS
from core.mac import local_network_permission
from core.mac.chip import chip_name, given_name
from core.mac.doctor import FEW_FILES, firewall_finding, usable
from core.mac.firewall import firewall, this_program
from core.mac.interfaces import Interface, interfaces, reachable
from core.mac.multicast import echo
from core.mac.network_kind import LISTED, listed_kinds, path_kind
from core.mac.open_file_limit import raise_descriptor_limit
from core.mac.prevent_sleep import CAFFEINATE, SleepPreventer, awake_by
from core.mac.rdma import RdmaSeen, devices_in, look, why_not
from core.plan.chip_bandwidth import memory_bytes_per_s
from core.settings import GB
from core.verify.check import NOT_A_MAC, Outcome, failed, passed, skipped

SERVICE_TYPE: Final = "_macl-verify._tcp.local."
HEARD_S: Final = 5.0
SETTLED_S: Final = 5.0
POLL_S: Final = 0.05
NAP_S: Final = 1.0


def chip(_: threading.Event) -> Outcome:
    if sys.platform != "darwin":
        return NOT_A_MAC
    name = chip_name()
    if rate := memory_bytes_per_s(name):
        return passed(f"{name}: {rate / GB:.0f} GB/s memory bandwidth by the table")
    return failed(f"{name} is not in the table of chips")


def name(_: threading.Event) -> Outcome:
    """macOS reports the name that the owner gave this Mac; the report leaves it out."""
    if sys.platform != "darwin":
        return NOT_A_MAC
    return passed("scutil reports it (left out here)") if given_name() else failed("scutil reports none")


def keychain(_: threading.Event) -> Outcome:
    if sys.platform != "darwin":
        return NOT_A_MAC
    from core.trust.keychain import drop, keep, recall

    name, passphrase = f"verify-{secrets.token_hex(8)}", secrets.token_hex(32).encode()
    if not keep(name, passphrase):
        return skipped("this process can't use a keychain, as over SSH; the key is then in a file (0600)")
    try:
        is_same = recall(name) == passphrase
    finally:
        drop(name)
    return passed("an item was stored, read and deleted") if is_same else failed("the stored item came back changed")


def bonjour(host: str, stop: threading.Event) -> Outcome:
    """Check that this machine hears its own Bonjour advertisement. `host`: as for a node."""
    from zeroconf import IPVersion, ServiceBrowser, ServiceInfo, Zeroconf

    found = usable(interfaces(), host)
    if not found:
        return skipped("this machine is on no network")
    name, noticed = f"{secrets.token_hex(8)}.{SERVICE_TYPE}", threading.Event()

    def notice(found_name: str) -> None:
        if found_name == name:
            noticed.set()

    with ExitStack() as stack:
        addresses = [each.address for each in found]
        speaker, listener = (Zeroconf(interfaces=addresses, ip_version=IPVersion.V4Only) for _ in range(2))
        stack.callback(speaker.close)
        stack.callback(listener.close)
        handler = [lambda zeroconf, service_type, name, state_change: notice(name)]
        started = time.perf_counter()
        ServiceBrowser(listener, SERVICE_TYPE, handlers=handler)
        info = ServiceInfo(SERVICE_TYPE, name, port=9, parsed_addresses=addresses, server=f"{name[:16]}.local.")
        speaker.register_service(info, cooperating_responders=True)
        while not noticed.wait(POLL_S):
            if stop.is_set() or time.perf_counter() - started > HEARD_S:
                return failed(silence_words(found))
        seconds = time.perf_counter() - started
    return passed(f"heard its own advertisement in {seconds:.2f} s; networks: {len(found)}")


def silence_words(found: Iterable[Interface]) -> str:
    """Words for silence: the fate of plain datagrams per network, and what to do."""
    echoes = [echo(each.address) for each in found]
    cure = (
        local_network_permission.advice(os.environ)
        if "denied" in echoes and sys.platform == "darwin"
        else "See `macluster doctor`."
    )
    counted = ", ".join(f"{word} {echoes.count(word)}" for word in dict.fromkeys(echoes))
    return f"did not hear its own advertisement within {HEARD_S:g} s; plain datagrams by network: {counted}. {cure}"


def incoming(_: threading.Event) -> Outcome:
    if (state := firewall()) == "unknown":
        return skipped("the firewall can only be checked on a Mac") if sys.platform != "darwin" else failed("no answer")
    finding = firewall_finding(state, Path(this_program()).name)  # its folder may name a person
    words = f"{finding.what} {'See `macluster doctor`.' if state == 'on' else finding.fix}".strip()
    return failed(words) if finding.state == "bad" else passed(words)


def awake(_: threading.Event) -> Outcome:
    """macOS lists the assertion that keeps this Mac awake while macluster holds it, and not after."""
    if not Path(CAFFEINATE).exists():
        return NOT_A_MAC
    before, keeper = awake_by(), SleepPreventer(os.getpid())
    try:
        keeper.keep(wanted=True)
        is_kept = _becomes_true(lambda: bool(awake_by() - before))
    finally:
        keeper.keep(wanted=False)
    is_let_go = _becomes_true(lambda: not awake_by() - before)
    if is_kept and is_let_go:
        return passed("macOS lists the assertion while it is held, and not after")
    return failed("macOS lists no assertion" if not is_kept else "the assertion stays after its release")


def _becomes_true(is_so: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + SETTLED_S
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def sleep(_: threading.Event) -> Outcome:
    if sys.platform == "darwin":
        running, stopped = time.CLOCK_MONOTONIC_RAW, time.CLOCK_UPTIME_RAW
    else:
        running, stopped = time.CLOCK_BOOTTIME, time.CLOCK_MONOTONIC
    return sleep_outcome(time.clock_gettime(running), time.clock_gettime(stopped), time.monotonic())


def sleep_outcome(running: float, stopped: float, own: float) -> Outcome:
    """Compare the system's clock that runs in sleep and the one that stops with `own`, the node's clock; in seconds."""
    if (slept_s := running - stopped) < NAP_S:
        return skipped("it has not slept since it started: close its lid for a minute, then run this again")
    listed = f"it slept for {slept_s:.0f} s since it started"
    if abs(own - stopped) < NAP_S:
        return passed(f"{listed}, and the node's clock stood still")
    return failed(f"{listed}, but the node's clock ran on")


def open_files(_: threading.Event) -> Outcome:
    raise_descriptor_limit()
    opened: list[int] = []
    try:
        while len(opened) < FEW_FILES:
            opened.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return failed(f"{len(opened)} files could be opened, {FEW_FILES} are needed: see `macluster doctor`")
    finally:
        for each in opened:
            os.close(each)
    return passed(f"{FEW_FILES} files open at once")


def ports(host: str, _: threading.Event) -> Outcome:
    """Check the kinds of this Mac's network ports. `host`: as for a node."""
    if sys.platform != "darwin":
        return NOT_A_MAC
    return ports_outcome(interfaces(), host) if len(listed_kinds()) > 1 else failed(f"{LISTED} can't be read")


def ports_outcome(found: Iterable[Interface], host: str) -> Outcome:
    """Kinds of the ports that other Macs get to connect to, and why the rest is left out."""
    up = [each for each in found if each.is_up and not each.is_loopback]
    listed = {each.name: f"{each.kind or 'other'}{_rate(each)}" for each in reachable(up, host)}
    if not listed:
        return failed("no port is up")
    left = Counter(_why_left(each) for each in {each.name: each for each in up if each.name not in listed}.values())
    return passed(
        "; ".join([", ".join(listed.values()), *(f"left out, {why}: {count}" for why, count in left.items())])
    )


def _why_left(each: Interface) -> str:
    if each.is_virtual:
        return "of virtual machines"
    return "link-local address only" if each.is_link_local else "not selected by --host"


def rdma(_: threading.Event) -> Outcome:
    return rdma_outcome(look())


def rdma_outcome(seen: RdmaSeen) -> Outcome:
    """Outcome by the output of macOS's commands; skipped with the reason if this Mac has no RDMA."""
    if not seen.macos:
        return NOT_A_MAC
    if seen.status and seen.status.strip().lower() not in ("enabled", "disabled"):
        return failed("rdma_ctl prints neither enabled nor disabled")
    if missing := why_not(seen):
        return skipped(missing)
    return passed(f"enabled; devices: {len(devices_in(seen.devices))}")


def _rate(each: Interface) -> str:
    return f" of {each.rate_mbits} Mbit/s" if each.rate_mbits else ""


def kind_of(via: str) -> str:
    """Kind of a port named "Wi-Fi (en0)" or "en0", without the name itself, which may be personal."""
    kind, _, name = via.removesuffix(")").rpartition(" (")
    return (kind if kind in RANKS else "") or path_kind(name, {}) or "another kind of port"
