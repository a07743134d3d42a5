"""What macOS does for macluster: each function is a check, and asks the machine itself."""

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

from core.mac import local_network_permission
from core.mac.chip import chip_name, given_name
from core.mac.doctor import FEW_FILES, firewall_finding, usable
from core.mac.firewall import firewall
from core.mac.interfaces import Interface, interfaces, reachable
from core.mac.multicast import echo
from core.mac.network_kind import path_kind
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
    """The chip's name is one of which predictions know how fast its memory is."""
    if sys.platform != "darwin":
        return NOT_A_MAC
    name = chip_name()
    if rate := memory_bytes_per_s(name):
        return passed(f"{name}: {rate / GB:.0f} GB/s of memory by the table")
    return failed(f"{name} is not in the table of chips")


def name(_: threading.Event) -> Outcome:
    """macOS says how its owner calls this Mac; that name is not told."""
    if sys.platform != "darwin":
        return NOT_A_MAC
    return passed("scutil reports it (left out here)") if given_name() else failed("scutil reports none")


def keychain(_: threading.Event) -> Outcome:
    """An item goes into the keychain, comes out again, and goes."""
    if sys.platform != "darwin":
        return NOT_A_MAC
    from core.trust.keychain import drop, keep, recall

    name, passphrase = f"verify-{secrets.token_hex(8)}", secrets.token_hex(32).encode()
    if not keep(name, passphrase):
        return skipped("no keychain is open to this process, as over SSH: a key lies in a file (0600) then")
    try:
        is_same = recall(name) == passphrase
    finally:
        drop(name)
    return passed("an item was kept, read and dropped") if is_same else failed("what was kept is not what came out")


def bonjour(host: str) -> Callable[[threading.Event], Outcome]:
    """What this machine advertises by Bonjour it hears itself. `host`: as a node's."""

    def run(stop: threading.Event) -> Outcome:
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

    return run


def silence_words(found: Iterable[Interface]) -> str:
    """What is said where nothing is heard: what plain datagrams did on each network, and what to do."""
    echoes = [echo(each.address) for each in found]
    cure = (
        local_network_permission.advice(os.environ)
        if "denied" in echoes and sys.platform == "darwin"
        else "See `macluster doctor`."
    )
    counted = ", ".join(f"{word} {echoes.count(word)}" for word in dict.fromkeys(echoes))
    return f"did not hear its own advertisement within {HEARD_S:g} s; plain datagrams by network: {counted}. {cure}"


def incoming(_: threading.Event) -> Outcome:
    """Whether macOS lets other Macs in."""
    if (state := firewall()) == "unknown":
        return skipped("the firewall can only be asked on a Mac") if sys.platform != "darwin" else failed("no answer")
    finding = firewall_finding(state)
    words = f"{finding.what} {finding.fix}".strip()
    return failed(words) if finding.state == "bad" else passed(words)


def awake(_: threading.Event) -> Outcome:
    """macOS says that this Mac is kept awake while it is to be, and no longer."""
    if not Path(CAFFEINATE).exists():
        return NOT_A_MAC
    before, keeper = awake_by(), SleepPreventer(os.getpid())
    try:
        keeper.keep(wanted=True)
        is_kept = _comes(lambda: bool(awake_by() - before))
    finally:
        keeper.keep(wanted=False)
    is_let_go = _comes(lambda: not awake_by() - before)
    if is_kept and is_let_go:
        return passed("macOS lists the assertion while it is held, and not after")
    return failed("macOS lists no assertion" if not is_kept else "the assertion stays when it is let go")


def _comes(is_so: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + SETTLED_S
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def sleep(_: threading.Event) -> Outcome:
    """Whether the clock of the node left out what this machine slept since it started."""
    if sys.platform == "darwin":
        goes_on, stands_still = time.CLOCK_MONOTONIC_RAW, time.CLOCK_UPTIME_RAW
    else:
        goes_on, stands_still = time.CLOCK_BOOTTIME, time.CLOCK_MONOTONIC
    return sleep_outcome(time.clock_gettime(goes_on), time.clock_gettime(stands_still), time.monotonic())


def sleep_outcome(goes_on: float, stands_still: float, own: float) -> Outcome:
    """By the system's two clocks, of which one goes on in sleep, and `own`, that of the node, in seconds."""
    if (slept_s := goes_on - stands_still) < NAP_S:
        return skipped("it has not slept since it started: close its lid for a minute, then again")
    listed = f"it slept for {slept_s:.0f} s since it started"
    if abs(own - stands_still) < NAP_S:
        return passed(f"{listed}, and the node's clock stood still")
    return failed(f"{listed}, and the node's clock went on")


def open_files(_: threading.Event) -> Outcome:
    """As many files as macluster needs can be open at the same time."""
    raise_descriptor_limit()
    opened: list[int] = []
    try:
        while len(opened) < FEW_FILES:
            opened.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return failed(f"{len(opened)} files were open at once, {FEW_FILES} are needed: see `macluster doctor`")
    finally:
        for each in opened:
            os.close(each)
    return passed(f"{FEW_FILES} files open at once")


def ports(host: str) -> Callable[[threading.Event], Outcome]:
    """By what this Mac is on its networks. `host`: as a node's."""
    return lambda _: NOT_A_MAC if sys.platform != "darwin" else ports_outcome(interfaces(), host)


def ports_outcome(found: Iterable[Interface], host: str) -> Outcome:
    """The kinds of those at which others are told to meet this Mac, and why they are not told of the rest."""
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
    return "with no address but its own" if each.is_link_local else "not asked for"


def rdma(_: threading.Event) -> Outcome:
    """What macOS says of RDMA is understood."""
    return rdma_outcome(look())


def rdma_outcome(seen: RdmaSeen) -> Outcome:
    """By what its commands print: skipped where this Mac has none, with what is missing."""
    if not seen.macos:
        return NOT_A_MAC
    if seen.status and seen.status.strip().lower() not in ("enabled", "disabled"):
        return failed("rdma_ctl says something else than enabled or disabled")
    if missing := why_not(seen):
        return skipped(missing)
    return passed(f"enabled; devices: {len(devices_in(seen.devices))}")


def _rate(each: Interface) -> str:
    return f" of {each.rate_mbits} Mbit/s" if each.rate_mbits else ""


def kind_of(via: str) -> str:
    """What kind a port is that was told as "Wi-Fi (en0)" or "en0": its own name may say more than that."""
    port, _, name = via.removesuffix(")").rpartition(" (")
    return path_kind(name, port) or "another kind of port"
