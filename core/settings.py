"""Where things lie and which limits hold: the one place for both."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

VERSION: Final = "0.1.0"
SERVICE_TYPE: Final = "_macluster._tcp.local."

CONTROL_PORT: Final = 4717
GB: Final = 1_000_000_000
MIB: Final = 1 << 20

# security.md §4: limits that hold before and after authentication
MAX_BODY: Final = 16 * MIB + 16
MAX_CONTROL_BODY: Final = 64 * 1024
MAX_ROWS: Final = 4096
MAX_CONTROL_LINKS: Final = 30  # with the two data links of the worker 32 in all
TLS_TIMEOUT_S: Final = 5.0
HELLO_TIMEOUT_S: Final = 2.0
SEND_TIMEOUT_S: Final = 30.0
MAX_FRAMES_PER_KEY: Final = 1 << 33

# security.md §3: a link is dialled anew at the first of these, long before a key has sealed its last frame
REKEY_AGE_S: Final = 3600.0
REKEY_BYTES: Final = 64 << 30
REKEY_FRAMES: Final = 1 << 32

BEAT_S: Final = 0.5
SUSPECT_S: Final = 1.2
DEAD_S: Final = 2.5

PREFILL_CHUNK: Final = 512
CHUNK_BYTES: Final = 8 * MIB
DEFAULT_CONTEXT: Final = 4096
KV_BITS: Final = (4, 8)
DEFAULT_MAX_TOKENS: Final = 512
PENALTY_CONTEXT: Final = 20  # as mlx-lm
DEFAULT_ROWS: Final = 8
MAX_LANE_ROWS: Final = 64
QUEUE_LIMIT: Final = 8
MAX_WINDOW: Final = 16
MAX_LOGPROBS: Final = 20
MAX_DRAFT: Final = 16
TRIES: Final = 3
TRY_S: Final = 40.0
MEMORY_RESERVE_BYTES: Final = 10 * GB
MEMORY_FLOOR_BYTES: Final = 2 * GB


class Home(msgspec.Struct, frozen=True):
    """The state folder of one node (0700)."""

    root: Path

    @property
    def identity(self) -> Path:
        """Folder of the device key and its certificate."""
        return self.root / "identity"

    @property
    def rosters(self) -> Path:
        """Folder of the signed rosters, one file an epoch."""
        return self.root / "rosters"

    @property
    def socket(self) -> Path:
        """The unix socket of the local API (0600)."""
        return self.root / "node.sock"

    @property
    def log(self) -> Path:
        """JSON lines."""
        return self.root / "node.log"

    @property
    def tokens(self) -> Path:
        """Folder of the sealed token logs."""
        return self.root / "tokens"

    @property
    def sessions(self) -> Path:
        """Folder of the saved conversations, one sealed file each."""
        return self.root / "sessions"

    @property
    def conversations(self) -> Path:
        """Folder of the words of conversations, one sealed file each."""
        return self.root / "conversations"

    @property
    def anatomies(self) -> Path:
        """Folder of what examining the models showed, one file a model."""
        return self.root / "anatomies"

    @property
    def seen(self) -> Path:
        """Which Macs were met before."""
        return self.root / "seen.json"

    @property
    def addresses(self) -> Path:
        """Where the members were reached last."""
        return self.root / "addresses.json"

    @property
    def paces(self) -> Path:
        """How fast the Macs were."""
        return self.root / "paces.json"

    @property
    def models(self) -> Path:
        """Models of this Mac, a directory each."""
        return self.root / "models"

    @property
    def hashes(self) -> Path:
        """SHA-256 of the models' files, remembered."""
        return self.root / "hashes.json"


def default_home() -> Home:
    """`$MACLUSTER_HOME`, or `~/.macluster` (short, because a unix socket's path has at most 104 bytes on macOS)."""
    return Home(Path(os.environ.get("MACLUSTER_HOME") or "~/.macluster").expanduser())


def hub_cache() -> Path:
    """Where this user's Hugging Face cache of models is, by the rules of huggingface_hub."""
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or f"{caches}/huggingface"
    hub = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE") or f"{home}/hub"
    return Path(os.path.expandvars(os.path.expanduser(hub))).absolute()
