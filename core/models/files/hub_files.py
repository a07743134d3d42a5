"""Selects the files of a hub repository that make up a model, with the hub's hashes. Runs in the download child."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from time import monotonic
from typing import Annotated, BinaryIO, Final, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec
from huggingface_hub import constants
from huggingface_hub.utils._validators import validate_repo_id

from core.errors import BadModel, TransferError
from core.models.files.checked_files import MAX_JSON_BYTES, OTHER_VERSION, POINTER
from core.models.files.hub_origin import Commit, HubOrigin
from core.models.files.hub_reader import PIECE_BYTES, BadReply, Patience, RemoteFile, redirected, reply_from
from core.models.files.model_settings import SMALL_FILES, settings_of
from core.models.files.safetensors import INDEX_NAME, is_stale, no_weights, parse_index, weight_names
from core.models.files.suitability import check_suitable
from core.numbers import Size
from core.settings import MIB

MAX_FILES: Final = 1000
MAX_LISTING_BYTES: Final = 32 * MIB
MAX_PAGES: Final = 200
PAGE_S: Final = 60.0
# file types of a model; never code: no Python, no pickle
KINDS: Final = (".safetensors", ".json", ".jinja", ".txt", ".model", ".tiktoken")
_TEMPLATES: Final = "additional_chat_templates/"

T = TypeVar("T")


class _Info(msgspec.Struct):
    sha: Commit


class _Large(msgspec.Struct):
    """Where the hub keeps a large file: under its SHA-256, outside git."""

    oid: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]


class _Entry(msgspec.Struct):
    """A file, or a folder, which is no file of a model."""

    path: Annotated[str, msgspec.Meta(max_length=4096)]
    oid: Annotated[str, msgspec.Meta(pattern=r"\A([0-9a-f]{40}|[0-9a-f]{64})\Z")]
    type: str
    size: Size = 0
    lfs: _Large | None = None


class HubFile(RemoteFile):
    """A file as the hub lists it."""

    @property
    def is_large(self) -> bool:
        return len(self.etag) == 64

    def check(self, content: BinaryIO) -> None:
        """Raise TransferError unless `content` matches."""
        head = b"" if self.is_large else f"blob {self.size}\0".encode()
        digest = hashlib.sha256() if self.is_large else hashlib.sha1(head, usedforsecurity=False)
        begin = content.read(MIB)
        if begin.startswith(POINTER):
            cure = "Download from the hub itself, without HF_ENDPOINT, or use another mirror."
            raise TransferError(f"{self.name} is only a pointer on this mirror, which lacks the large files.", cure)
        for piece in chain([begin], iter(partial(content.read, MIB), b"")):
            digest.update(piece)
        if digest.hexdigest() != self.etag:
            raise TransferError(f"{self.name} arrived damaged.", "Download it again. Intact files are kept.")


def wanted_names(names: Sequence[str]) -> list[str]:
    """The files of a repository that make up a model; model*.safetensors if weights come in two formats."""
    plain = [n for n in names if n.endswith(KINDS) and "/" not in n.removeprefix(_TEMPLATES)]
    doubled = any(n.startswith("model") and n.endswith(".safetensors") for n in plain)
    return [n for n in plain if not (doubled and n.endswith(".safetensors") and not n.startswith("model"))]


class HubModel(NamedTuple):
    """A commit of a repository: the files of its model, and the names of all files."""

    origin: HubOrigin
    files: list[HubFile]
    names: frozenset[str]

    def check(self, contents: Mapping[str, bytes]) -> None:
        """Raise UnsupportedModel or BadModel if the model can't run here. `contents`: its SMALL_FILES."""
        try:
            settings = settings_of(self.origin.repo, contents, self.names)
            index = parse_index(contents.get(INDEX_NAME), settings.name)
            weight_names(self.names, None if index and is_stale(index, self.names) else index, settings.name)
            check_suitable(settings)
        except BadModel as error:  # its files are no better on the hub
            raise BadModel(error.what, OTHER_VERSION) from error


def model_of(repo: str, revision: str, patience: Patience) -> HubModel:
    """The model at `revision`. Raises TransferError, UnsupportedModel, and huggingface_hub's errors."""
    validate_repo_id(repo)
    address = f"{constants.ENDPOINT}/api/models/{repo}"
    (info,) = patience.with_retries(lambda: _answers(f"{address}/revision/{quote(revision, safe='')}", _Info))
    tree = f"{address}/tree/{info.sha}?recursive=true"
    entries = chain.from_iterable(patience.with_retries(lambda: _answers(tree, list[_Entry])))
    found = {entry.path: entry for entry in entries if entry.type == "file"}
    names = wanted_names(sorted(found))
    if not any(name.endswith(".safetensors") for name in names):
        raise no_weights(repo, found)
    if len(names) > MAX_FILES:
        raise TransferError(f"{repo} has {len(names)} files.", "Choose another repository.")
    files = []
    for name in names:
        file = found[name]
        if name in SMALL_FILES and file.size > MAX_JSON_BYTES:
            raise TransferError(f"{name} has {file.size} bytes on the hub.", "Choose another repository.")
        files.append(HubFile(name, file.size, file.lfs.oid if file.lfs else file.oid))
    return HubModel(HubOrigin(repo=repo, commit=info.sha), files, frozenset(found))


def _answers(place: str, kind: type[T]) -> list[T]:
    """The hub's pages from `place` on, within limits on bytes, pages and time. Raises TransferError, BadReply."""
    pages, left = list[T](), MAX_LISTING_BYTES
    while len(pages) < MAX_PAGES:
        body, until = bytearray(), monotonic() + PAGE_S
        with reply_from(place, "its list of files", {}) as reply:
            for piece in reply.iter_raw(PIECE_BYTES):
                body += piece
                if len(body) > left:
                    raise TransferError("The hub's list of files is too long.", "Choose another repository.")
                if monotonic() > until:
                    raise BadReply("The hub's list of files takes too long.", "Try again later.")
            then = reply.links.get("next", {}).get("url")
        left -= len(body)
        try:
            pages.append(msgspec.json.decode(body, type=kind))
        except msgspec.ValidationError as error:
            what = f"The hub lists files in a form that macluster doesn't know ({str(error)[:200]})."
            raise TransferError(what, "Choose another repository, or check HF_ENDPOINT.") from error
        if not then:
            return pages
        place = redirected(place, then)
    raise TransferError("The hub's list of files is too long.", "Choose another repository.")
