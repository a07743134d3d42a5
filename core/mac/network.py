"""Which interface has an address, and what kind it is, as far as the system says so."""

from __future__ import annotations

import subprocess
import sys
from ipaddress import ip_address

import psutil


def link_kind(host: str) -> str:
    """How this Mac reaches the network by its own address `host`: "Wi-Fi (en0)", "en7" where the kind is not known,
    "loopback", or "" where no interface has it.
    """
    if not host or ip_address(host.partition("%")[0]).is_loopback:
        return "loopback" if host else ""
    name = interface_of(host)
    kind = _ports().get(name, "") if name and sys.platform == "darwin" else ""
    return f"{kind} ({name})" if kind else name


def interface_of(host: str) -> str:
    """The interface that has the address, "" where none has it."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(address.address.partition("%")[0] == host for address in addresses):
            return name
    return ""


def parse_ports(text: str) -> dict[str, str]:
    """Kinds by interface in what `networksetup -listallhardwareports` prints."""
    kinds, kind = {}, ""
    for line in text.splitlines():
        word, _, value = line.partition(": ")
        if word == "Hardware Port":
            kind = value.strip()
        elif word == "Device" and kind:
            kinds[value.strip()] = kind
    return kinds


def _ports() -> dict[str, str]:
    command = ["/usr/sbin/networksetup", "-listallhardwareports"]
    try:
        return parse_ports(subprocess.run(command, capture_output=True, text=True, timeout=2, check=False).stdout)
    except (OSError, subprocess.TimeoutExpired):
        return {}
