"""RDMA over Thunderbolt 5: whether this Mac supports it, and its devices."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from core.mac.interfaces import Interface
from core.mac.requirements import macos_version, version_numbers
from core.mac.system_command import said

OLDEST: Final = (26, 2)
STATUS: Final = ("/usr/bin/rdma_ctl", "status")
DEVICES: Final = ("/usr/bin/ibv_devices",)
_DEVICE: Final = re.compile(r"^\s*(rdma_en[0-9]{1,3})\b", re.MULTILINE)


class RdmaSeen(NamedTuple):
    """Facts that this machine reports about RDMA."""

    macos: str = ""  # version ("26.2.1"), "" on other systems
    status: str = ""  # output of `rdma_ctl status`
    devices: str = ""  # output of `ibv_devices`


def look() -> RdmaSeen:
    """Query this machine; both commands only read."""
    if sys.platform != "darwin":
        return RdmaSeen()
    return RdmaSeen(macos_version(), said(*STATUS), said(*DEVICES))


def why_not(seen: RdmaSeen) -> str:
    """The missing requirement and its fix; "" if RDMA works."""
    if not seen.macos:
        return "RDMA over Thunderbolt needs a Mac."
    if version_numbers(seen.macos) < OLDEST:
        return f"This Mac runs macOS {seen.macos}; RDMA over Thunderbolt needs macOS 26.2 or later."
    if seen.status.strip().lower() != "enabled":
        return "RDMA is not enabled on this Mac: start it in Recovery and run `rdma_ctl enable` in its Terminal."
    if not devices_in(seen.devices):
        return "This Mac has no RDMA device: that takes Thunderbolt 5 at both ends of the cable."
    return ""


def devices_in(listed: str) -> tuple[str, ...]:
    return tuple(_DEVICE.findall(listed))


def device_at(host: str, found: Iterable[Interface], devices: Sequence[str]) -> str:
    plain, _, scope = host.partition("%")
    name = scope or next((each.name for each in found if each.address == plain), "")
    return f"rdma_{name}" if f"rdma_{name}" in devices else ""
