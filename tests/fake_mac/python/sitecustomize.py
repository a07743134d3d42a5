"""Python reads this at its start under `mac.sh`: from then on it takes this machine for a Mac."""

import asyncio  # noqa: F401 - this and what follows choose by the platform while they are imported
import ctypes
import ctypes.util
import getpass  # noqa: F401
import multiprocessing.util  # noqa: F401
import os
import platform
import shutil  # noqa: F401
import subprocess  # noqa: F401
import sys
import urllib.request  # noqa: F401
import uuid  # noqa: F401
import webbrowser  # noqa: F401
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import truststore  # noqa: F401

FOOTPRINT_AT = 16 + 7 * 8


class Libproc:
    """The one function of /usr/lib/libproc.dylib that is called."""

    def proc_pid_rusage(self, pid: int, _: int, usage: Any) -> int:
        footprint = psutil.Process(pid).memory_info().rss
        ctypes.memmove(ctypes.addressof(usage) + FOOTPRINT_AT, footprint.to_bytes(8, "little"), 8)
        return 0


def library(name: str | None, *words: Any, **options: Any) -> Any:
    return Libproc() if name == "/usr/lib/libproc.dylib" else load(name, *words, **options)


def kept(*_: object) -> None:
    Path(os.environ["FAKE_MAC"], "keychain").touch()


load, ctypes.CDLL = ctypes.CDLL, library  # type: ignore[assignment, misc]
keychain: Any = ModuleType("keyring.backends.macOS.api")
keychain.Error = keychain.NotFound = keychain.KeychainDenied = OSError
keychain.set_generic_password = keychain.find_generic_password = keychain.delete_generic_password = kept
sys.modules[keychain.__name__] = keychain
platform.system, platform.machine = lambda: "Darwin", lambda: "arm64"
platform.mac_ver = lambda *_: ("15.6.1", ("", "", ""), "arm64")
sys.platform = "darwin"
