"""Paths of a node's files, and numbers that several rooms share. Other limits are next to the code that checks them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final, Literal

import msgspec

VERSION: Final = "0.1.0"
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
DEFAULT_CONTEXT: Final = 4096
FAR_BACK: Final = 32_768  # tokens before a chunk, from which on chunks are smaller
MAX_DRAFT: Final = 16
KV_BITS: Final = (4, 8)
DEFAULT_ROWS: Final = 8
MAX_LANE_ROWS: Final = 64
QUEUE_LIMIT: Final = 8
# names, in the environment, what MLX computes on: "cpu", or the GPU where there is one
DEVICE: Final = "MACLUSTER_DEVICE"


class _FileOfHome:
    """A path inside the state folder."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, home: Home, _: type[Home]) -> Path:
        return home.root / self._name


class Home(msgspec.Struct, frozen=True):
    """The state folder of one node (0700)."""

    root: Path

    identity = _FileOfHome("identity")  # device key and certificate
    rosters = _FileOfHome("rosters")  # signed rosters, one file per epoch
    socket = _FileOfHome("node.sock")  # Unix socket of the local API (0600)
    lock = _FileOfHome("node.lock")  # locked while a node runs here; contains its process id
    log = _FileOfHome("node.log")  # log, JSON lines
    last_run = _FileOfHome("last-run.json")  # reason of a failed start or a crash (0600); absent after a clean exit
    stderr_log = _FileOfHome("node.stderr")  # standard error of a node without a terminal
    tokens = _FileOfHome("token-logs")  # sealed token logs
    sessions = _FileOfHome("sessions")  # saved sessions, one sealed file each
    conversations = _FileOfHome("conversations")  # texts of conversations, one sealed file each
    split_profiles = _FileOfHome("split-profiles")  # results of examining models, one file per model
    pairing_attempts = _FileOfHome("pairing-attempts.json")  # times of failed pairing attempts
    api_keys = _FileOfHome("api-keys.json")  # hashes of the API keys
    api_certificate = _FileOfHome("api-certificate")  # certificate and key of the API for other machines
    typed = _FileOfHome("typed.jsonl")  # input history of `macluster run`, JSON lines
    seen = _FileOfHome("seen.json")  # Macs met before
    addresses = _FileOfHome("addresses.json")  # last known addresses of the members
    throughput = _FileOfHome("measured-speeds.json")  # measured speeds of the Macs
    stages = _FileOfHome("layers-held.json")  # layers of each model that this Mac loaded last
    paused = _FileOfHome("paused.json")  # paused transfers; absent if none is paused
    models = _FileOfHome("models")  # models of this Mac, one directory each
    hashes = _FileOfHome("hashes.json")  # cached SHA-256 hashes of model files


def default_home() -> Home:
    """`$MACLUSTER_HOME`, or `~/.macluster`: short, because macOS limits a unix socket's path to 104 bytes."""
    return Home(Path(os.environ.get("MACLUSTER_HOME") or "~/.macluster").expanduser())


def hub_cache() -> Path:
    """Hugging Face's model cache of this user, by the rules of huggingface_hub."""
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or f"{caches}/huggingface"
    hub = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE") or f"{home}/hub"
    return Path(os.path.expandvars(os.path.expanduser(hub))).absolute()
