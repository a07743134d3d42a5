"""Checks of this machine: why other Macs aren't found, or no model runs, and what to do.

Functions ending in `_finding` are pure; `examine_…` query the machine and yield each finding as soon as it is known.
"""

from __future__ import annotations

import asyncio
import os
import platform
import re
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from core.mac import local_network_permission
from core.mac.firewall import TOOL, Firewall, firewall, this_program
from core.mac.interfaces import ANYWHERE, Interface, interfaces
from core.mac.memory import physical_bytes, used_bytes
from core.mac.multicast import Echo, echo
from core.mac.open_file_limit import allowed_descriptors
from core.mac.requirements import macos_version, version_numbers
from core.requests.checks import Finding
from core.settings import CONTROL_PORT, GB, MIB
from core.version import package_version, program_version

DISK_LOW_BYTES: Final = 10 * GB
DISK_FULL_BYTES: Final = GB
FEW_FILES: Final = 1024
ACCELERATED: Final = 26  # the release from which MLX's build has kernels for the accelerators of an M5
PACKAGES: Final = ("mlx", "mlx-lm", "zeroconf", "textual")


async def examine_network(host: str) -> AsyncIterator[Finding]:
    """Check whether other Macs can reach this one; only the interfaces of the node's address `host` are used."""
    found = usable(interfaces(), host)
    yield network_finding(found, host)
    if found:
        echoes = await asyncio.gather(*(asyncio.to_thread(echo, each.address) for each in found))
        yield multicast_finding(dict(zip((each.name for each in found), echoes, strict=True)), sys.platform)
    yield firewall_finding(await asyncio.to_thread(firewall), this_program())


async def examine_machine(
    folder: Path, budget_bytes: int, working_set_bytes: int, model_roots: Sequence[Path] = ()
) -> AsyncIterator[Finding]:
    """Check whether this machine can run a model. `working_set_bytes`: the GPU's limit set by macOS (0: unknown)."""
    if (closed := models_finding(await asyncio.to_thread(unreadable, model_roots), this_program())) is not None:
        yield closed
    yield await _asked("disk", lambda: disk_finding(_free_bytes(folder)))
    yield await _asked(
        "memory", lambda: memory_finding(physical_bytes(), used_bytes(), budget_bytes, working_set_bytes)
    )
    yield files_finding(allowed_descriptors())
    yield programs_finding(platform.python_version(), {name: package_version(name) for name in PACKAGES})
    if (older := build_finding(macos_version(), metal_build())) is not None:
        yield older


def usable(found: Iterable[Interface], host: str) -> tuple[Interface, ...]:
    if host in ANYWHERE:
        return tuple(i for i in found if i.is_up and i.is_ipv4 and not (i.is_loopback or i.is_virtual))
    return tuple(each for each in found if each.is_up and each.address == host)


def network_finding(found: Sequence[Interface], host: str) -> Finding:
    listed = ", ".join(f"{each.name} {each.address} ({each.subnet})" for each in found)
    if not found:
        what = "This Mac is on no network." if host in ANYWHERE else f"No interface that is up has the address {host}."
        return Finding(
            name="network", state="bad", what=what, fix="Join the Wi-Fi or plug in a cable, then check again."
        )
    if all(each.is_loopback for each in found):
        fix = "Fine for Macs simulated on this one. To reach others, start the node without --host."
        return Finding(name="network", state="warn", what=f"Loopback only: {listed}.", fix=fix)
    if all(each.kind == "tunnel" for each in found):
        fix = "Bonjour doesn't work over a VPN: join the other Mac's network, or add it by address."
        return Finding(name="network", state="warn", what=f"VPN only: {listed}.", fix=fix)
    return Finding(name="network", state="ok", what=f"{listed}.")


def multicast_finding(echoes: Mapping[str, Echo], system: str) -> Finding:
    """Whether Bonjour works, by interface; `system` is `sys.platform`."""
    echoing = [name for name, each in echoes.items() if each == "heard"]
    if echoing:
        return Finding(name="multicast", state="ok", what=f"Works on {', '.join(echoing)}.")
    names = ", ".join(echoes)
    if "denied" in echoes.values():
        cure = (
            local_network_permission.advice(os.environ)
            if system == "darwin"
            else "A firewall or another rule of this machine blocks it."
        )
        return Finding(name="multicast", state="bad", what=f"The system blocks sending on {names}.", fix=cure)
    if "silent" in echoes.values():
        cure = "A firewall or a VPN blocks it: turn that off for a moment, or add Macs by address."
        return Finding(name="multicast", state="bad", what=f"Sent on {names}, but nothing was received.", fix=cure)
    return Finding(name="multicast", state="bad", what=f"Not available on {names}.", fix="Add Macs by address.")


def firewall_finding(state: Firewall, program: str) -> Finding:
    """Whether the firewall lets other Macs in; `program` is the file that it asks about."""
    match state:
        case "off":
            return Finding(name="firewall", state="ok", what="The firewall of macOS is off.")
        case "on":
            allow = " && ".join(f'sudo {TOOL} {word} "{program}"' for word in ("--add", "--unblockapp"))
            cure = f"If Macs don't connect: `{allow}`, or System Settings > Network > Firewall > Options."
            return Finding(name="firewall", state="warn", what=f"On: {program} must be allowed.", fix=cure)
        case "closed":
            cure = 'System Settings > Network > Firewall > Options: turn off "Block all incoming connections".'
            return Finding(name="firewall", state="bad", what="All incoming connections are blocked.", fix=cure)
        case _:
            cure = f"If Macs don't connect, allow TCP {CONTROL_PORT} and UDP 5353."
            return Finding(name="firewall", state="unknown", what="Can't be checked here.", fix=cure)


def disk_finding(free_bytes: int) -> Finding:
    what = f"{free_bytes / GB:.0f} GB free for models and conversations."
    if free_bytes >= DISK_LOW_BYTES:
        return Finding(name="disk", state="ok", what=what)
    cure = "Delete files that you don't need: a model takes 4 to 400 GB."
    return Finding(name="disk", state="bad" if free_bytes < DISK_FULL_BYTES else "warn", what=what, fix=cure)


def memory_finding(physical: int, used: int, budget: int, working_set: int) -> Finding:
    """Memory that a worker may use, in bytes; `working_set`: the GPU's limit set by macOS (0: unknown)."""
    if 0 < working_set < budget:
        what = f"macOS limits the GPU, and so every model, to {working_set / GB:.0f} of {physical / GB:.0f} GB."
        cure = f"`sudo sysctl iogpu.wired_limit_mb={budget // MIB}` raises the limit until this Mac restarts."
        return Finding(name="memory", state="warn", what=what, fix=cure)
    what = f"Models can use {budget / GB:.0f} GB; {used / GB:.0f} of {physical / GB:.0f} GB are in use now."
    if physical - used >= min(budget, physical) / 2:
        kept = f"{(physical - budget) / GB:.0f} GB stay for other programs; `macluster node --budget` changes that."
        return Finding(name="memory", state="ok", what=what, fix=kept if budget < physical / 2 else "")
    return Finding(name="memory", state="warn", what=what, fix="Close large programs before loading a model.")


def files_finding(allowed: int) -> Finding:
    what = f"A process can open {allowed} files."
    if allowed >= FEW_FILES:
        return Finding(name="open files", state="ok", what=what)
    cure = "Start macluster with a higher `ulimit -H -n`; links and models may fail until then."
    return Finding(name="open files", state="bad", what=f"{what[:-1]}, {FEW_FILES} are needed.", fix=cure)


def programs_finding(python: str, packages: Mapping[str, str]) -> Finding:
    missing = [name for name, found in packages.items() if not found]
    if missing:
        cure = "Reinstall macluster in its own environment."
        return Finding(name="programs", state="bad", what=f"Not installed: {', '.join(missing)}.", fix=cure)
    listed = ", ".join(f"{name} {found}" for name, found in packages.items())
    return Finding(name="programs", state="ok", what=f"macluster {program_version()}, Python {python}, {listed}.")


def models_finding(closed: Sequence[Path], program: str) -> Finding | None:
    """Folders of models that macOS closes to this program, as on an external disk and in Documents; None if none is."""
    if not closed:
        return None
    what = f"macOS does not let macluster read {', '.join(map(str, closed))}."
    cure = f"System Settings > Privacy & Security > Full Disk Access: add {program}, then start macluster again."
    return Finding(name="models", state="bad", what=what, fix=cure)


def unreadable(folders: Iterable[Path]) -> list[Path]:
    closed = []
    for folder in folders:
        try:
            os.listdir(folder)
        except PermissionError:
            closed.append(folder)
        except OSError:
            continue  # it is not there, or not connected now
    return closed


def build_finding(macos: str, build: str) -> Finding | None:
    """Warn of MLX built for an older macOS than this one: it lacks the newest GPU's kernels; None if all is well."""
    runs, made_for = version_numbers(macos), version_numbers(build)
    if runs < (ACCELERATED,) or not () < made_for < (ACCELERATED,):
        return None
    what = f"MLX is the build for macOS {made_for[0]}, this Mac runs {runs[0]}: an M5 computes prompts slower with it."
    cure = f"`SYSTEM_VERSION_COMPAT=0 {sys.executable} -m pip install --force-reinstall --no-deps mlx-metal`"
    return Finding(name="programs", state="warn", what=what, fix=cure)


def metal_build() -> str:
    """The macOS version that MLX's kernels were built for ("15.0"), by their wheel's tag; "" without such a wheel."""
    try:
        wheel = distribution("mlx-metal").read_text("WHEEL") or ""
    except PackageNotFoundError:
        return ""
    found = re.search(r"macosx_(\d+)_(\d+)_", wheel)
    return f"{found[1]}.{found[2]}" if found else ""


async def _asked(name: str, ask: Callable[[], Finding]) -> Finding:
    try:
        return await asyncio.to_thread(ask)
    except OSError as error:
        return Finding(name=name, state="unknown", what=f"The system doesn't say: {error.strerror}.")


def _free_bytes(folder: Path) -> int:
    exists = next(each for each in (folder, *folder.parents) if each.exists())
    return shutil.disk_usage(exists).free
