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


class Home(msgspec.Struct, frozen=True):
    """The state folder of one node (0700)."""

    root: Path

    @property
    def identity(self) -> Path:
        """Device key and certificate."""
        return self.root / "identity"

    @property
    def rosters(self) -> Path:
        """Signed rosters, one file per epoch."""
        return self.root / "rosters"

    @property
    def socket(self) -> Path:
        """Unix socket of the local API (0600)."""
        return self.root / "node.sock"

    @property
    def lock(self) -> Path:
        """Locked while a node runs here; contains its process id."""
        return self.root / "node.lock"

    @property
    def log(self) -> Path:
        """Log, JSON lines."""
        return self.root / "node.log"

    @property
    def last_run(self) -> Path:
        """Why the last node could not start or crashed (0600); absent after a clean exit."""
        return self.root / "last-run.json"

    @property
    def stderr_log(self) -> Path:
        """Standard error of a node without a terminal: how it ended if the log does not say."""
        return self.root / "node.stderr"

    @property
    def tokens(self) -> Path:
        """Sealed token logs."""
        return self.root / "token-logs"

    @property
    def sessions(self) -> Path:
        """Saved sessions, one sealed file each."""
        return self.root / "sessions"

    @property
    def conversations(self) -> Path:
        """Texts of conversations, one sealed file each."""
        return self.root / "conversations"

    @property
    def split_profiles(self) -> Path:
        """Results of examining models, one file per model."""
        return self.root / "split-profiles"

    @property
    def pairing_attempts(self) -> Path:
        """Times of failed pairing attempts."""
        return self.root / "pairing-attempts.json"

    @property
    def api_keys(self) -> Path:
        """Hashes of the API keys."""
        return self.root / "api-keys.json"

    @property
    def api_certificate(self) -> Path:
        """Certificate and key of the API for other machines."""
        return self.root / "api-certificate"

    @property
    def typed(self) -> Path:
        """Input history of `macluster run`, JSON lines."""
        return self.root / "typed.jsonl"

    @property
    def seen(self) -> Path:
        """Macs met before."""
        return self.root / "seen.json"

    @property
    def addresses(self) -> Path:
        """Last known addresses of the members."""
        return self.root / "addresses.json"

    @property
    def throughput(self) -> Path:
        """Measured speeds of the Macs."""
        return self.root / "measured-speeds.json"

    @property
    def stages(self) -> Path:
        """Which layers of each model this Mac loaded last."""
        return self.root / "layers-held.json"

    @property
    def paused(self) -> Path:
        """Paused transfers; absent if there are none."""
        return self.root / "paused.json"

    @property
    def models(self) -> Path:
        """Models of this Mac, one directory each."""
        return self.root / "models"

    @property
    def hashes(self) -> Path:
        """Cached SHA-256 hashes of model files."""
        return self.root / "hashes.json"


def default_home() -> Home:
    """`$MACLUSTER_HOME`, or `~/.macluster`: short, because macOS limits a unix socket's path to 104 bytes."""
    return Home(Path(os.environ.get("MACLUSTER_HOME") or "~/.macluster").expanduser())


def hub_cache() -> Path:
    """Hugging Face's model cache of this user, by the rules of huggingface_hub."""
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or f"{caches}/huggingface"
    hub = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE") or f"{home}/hub"
    return Path(os.path.expandvars(os.path.expanduser(hub))).absolute()
