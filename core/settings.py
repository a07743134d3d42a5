"""Paths of a node's files, and numbers that several rooms share. Other limits are next to the code that checks them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final, Literal, overload

import msgspec

STAY: Final = b"stay\n"  # on a node's standard input: run on when it closes
CONTROL_PORT: Final = 4717
API_PORT: Final = 4720
API_QUEUE: Final = 100
KeyPlace = Literal["file", "keychain"]
KEY_PLACE: Final[KeyPlace] = "keychain" if sys.platform == "darwin" else "file"
LOOPBACK_HOST: Final = "127.0.0.1"
GB: Final = 1_000_000_000
MIB: Final = 1 << 20

MAX_CONTROL_BODY: Final = 64 * 1024  # bytes
MAX_ROWS: Final = 4096
PREFILL_CHUNK: Final = 512
CHUNK_BYTES: Final = 8 * MIB
DEFAULT_CONTEXT: Final = 4096  # of a model that tells none, and the least that is chosen by memory
FAR_BACK: Final = 32_768  # tokens before a chunk, from which on chunks are smaller
MAX_DRAFT: Final = 16
KV_BITS: Final = (4, 8)
DEFAULT_ROWS: Final = 8
MAX_LANE_ROWS: Final = 64
QUEUE_LIMIT: Final = 8
ROW_GROWTH: Final = 256  # tokens of memory that a request needs beyond its prompt to start
# names, in the environment, what MLX computes on: "cpu", or the GPU where there is one
DEVICE: Final = "MACLUSTER_DEVICE"


class HomeFile:
    """A path inside the state folder, and the newest format of the file, or of the files in the folder; 0 for none."""

    def __init__(self, name: str, format: int = 0) -> None:
        self.name, self.format = name, format

    @overload
    def __get__(self, home: None, _: type[Home]) -> HomeFile: ...
    @overload
    def __get__(self, home: Home, _: type[Home]) -> Path: ...
    def __get__(self, home: Home | None, _: type[Home]) -> HomeFile | Path:
        return home.root / self.name if home else self


class Home(msgspec.Struct, frozen=True):
    """The state folder of one node (0700). Raise a file's format with every change of it, also for a new field
    (`core.trust.file_formats`).
    """

    root: Path

    identity = HomeFile("identity", 1)  # device key and certificate
    rosters = HomeFile("rosters", 1)  # signed rosters, one file per epoch
    socket = HomeFile("node.sock")  # Unix socket of the local API (0600)
    lock = HomeFile("node.lock")  # locked while a node runs here; contains its process id
    log = HomeFile("node.log")  # log, JSON lines
    last_run = HomeFile("last-run.json", 1)  # reason of a failed start or a crash (0600); absent after a clean exit
    stderr_log = HomeFile("node.stderr")  # standard error of a node without a terminal
    tokens = HomeFile("token-logs", 1)  # sealed token logs
    sessions = HomeFile("sessions", 1)  # saved sessions, one sealed file each
    conversations = HomeFile("conversations", 3)  # texts of conversations, sealed; drafts, and an index
    split_profiles = HomeFile("split-profiles", 1)  # results of examining models, one file per model
    references = HomeFile("whole-logits", 1)  # logits of whole models on this Mac, one file per model
    pairing_attempts = HomeFile("pairing-attempts.json", 1)  # times of failed pairing attempts
    api_keys = HomeFile("api-keys.json", 1)  # hashes of the API keys
    api_certificate = HomeFile("api-certificate")  # certificate and key of the API for other machines
    typed = HomeFile("typed.json", 1)  # input history of `macluster run`
    seen = HomeFile("seen.json", 1)  # Macs met before
    addresses = HomeFile("addresses.json", 1)  # last known addresses of the members
    throughput = HomeFile("measured-speeds.json", 1)  # measured speeds of the Macs
    stages = HomeFile("layers-held.json", 1)  # layers of each model that this Mac loaded last
    paused = HomeFile("paused.json", 1)  # paused transfers; absent if none is paused
    theme = HomeFile("tui.json", 1)  # the theme chosen last
    models = HomeFile("models", 1)  # models of this Mac, one directory each; the format is of `.blocks`, `.hub` ...
    catalog = HomeFile("catalog.json", 1)  # models of this Mac as they were read last
    hashes = HomeFile("hashes.json", 1)  # cached SHA-256 hashes of model files


HOME_FILES: Final = frozenset(each.name for each in vars(Home).values() if isinstance(each, HomeFile))


def default_home() -> Home:
    """`$MACLUSTER_HOME`, or `~/.macluster`: short, because macOS limits a unix socket's path to 104 bytes."""
    return Home(Path(os.environ.get("MACLUSTER_HOME") or "~/.macluster").expanduser())


def hub_cache() -> Path:
    """Hugging Face's model cache of this user, by the rules of huggingface_hub."""
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or f"{caches}/huggingface"
    hub = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE") or f"{home}/hub"
    return Path(os.path.expandvars(os.path.expanduser(hub))).absolute()
