"""Where a node's files lie, and the few numbers that several floors share. Any other limit stands beside the code that
checks it.
"""

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
    def lock(self) -> Path:
        """Locked while a node runs here; holds its process id."""
        return self.root / "node.lock"

    @property
    def log(self) -> Path:
        """JSON lines."""
        return self.root / "node.log"

    @property
    def last_words(self) -> Path:
        """Why the last node could not start, or has ended (0600); absent after an end in order."""
        return self.root / "last-words.json"

    @property
    def complaints(self) -> Path:
        """What a node without a terminal wrote to standard error: how it ended where its log does not say."""
        return self.root / "node.stderr"

    @property
    def tokens(self) -> Path:
        """Folder of the sealed token logs."""
        return self.root / "token-logs"

    @property
    def sessions(self) -> Path:
        """Folder of the saved conversations, one sealed file each."""
        return self.root / "sessions"

    @property
    def conversations(self) -> Path:
        """Folder of the words of conversations, one sealed file each."""
        return self.root / "conversations"

    @property
    def split_profiles(self) -> Path:
        """Folder of what examining the models showed, one file a model."""
        return self.root / "split-profiles"

    @property
    def pairing_attempts(self) -> Path:
        """When somebody saw the digits of a pairing that did not end well."""
        return self.root / "pairing-attempts.json"

    @property
    def api_keys(self) -> Path:
        """Hashes of the keys of the API."""
        return self.root / "api-keys.json"

    @property
    def api_certificate(self) -> Path:
        """Folder of what the API shows at other addresses than this Mac's own, and its key."""
        return self.root / "api-certificate"

    @property
    def typed(self) -> Path:
        """What was typed in conversations of `macluster run`, JSON lines."""
        return self.root / "typed.jsonl"

    @property
    def seen(self) -> Path:
        """Which Macs were met before."""
        return self.root / "seen.json"

    @property
    def addresses(self) -> Path:
        """Where the members were reached last."""
        return self.root / "addresses.json"

    @property
    def throughput(self) -> Path:
        """How fast the Macs were."""
        return self.root / "measured-speeds.json"

    @property
    def stages(self) -> Path:
        """Which layers this Mac held last of each model."""
        return self.root / "layers-held.json"

    @property
    def paused(self) -> Path:
        """What was on its way to this Mac's disk, and is paused; absent where nothing is."""
        return self.root / "paused.json"

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
