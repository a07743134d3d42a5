"""Selects the files of a hub repository that make up a model, with the hub's hashes. Runs in the download child."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from typing import BinaryIO, Final, NamedTuple

from huggingface_hub import HfApi, constants
from huggingface_hub.hf_api import RepoFile

from core.errors import BadModel, TransferError
from core.models.files.checked_files import MAX_JSON_BYTES, OTHER_VERSION, POINTER
from core.models.files.hub_origin import HubOrigin
from core.models.files.hub_reader import Patience, RemoteFile
from core.models.files.model_settings import SMALL_FILES, settings_of
from core.models.files.safetensors import INDEX_NAME, is_stale, no_weights, parse_index, weight_names
from core.models.files.suitability import check_suitable
from core.settings import MIB

MAX_FILES: Final = 1000
# file types of a model; never code: no Python, no pickle
KINDS: Final = (".safetensors", ".json", ".jinja", ".txt", ".model", ".tiktoken")
_TEMPLATES: Final = "additional_chat_templates/"
_ETAG: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


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
    api = HfApi(endpoint=constants.ENDPOINT)
    commit = patience.with_retries(lambda: api.repo_info(repo, revision=revision).sha)
    tree = patience.with_retries(lambda: list(api.list_repo_tree(repo, recursive=True, revision=commit)))
    found = {entry.path: entry for entry in tree if isinstance(entry, RepoFile)}
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
        etag = file.lfs.sha256 if file.lfs else file.blob_id
        if not _ETAG.fullmatch(etag):
            raise TransferError(f"The hub gives {name} of {repo} no usable hash.", "Choose another repository.")
        files.append(HubFile(name, file.size, etag))
    return HubModel(HubOrigin(repo=repo, commit=str(commit)), files, frozenset(found))
