"""Reads a model folder once: settings, weight headers, fingerprint, and the blocks on this disk.

Reads JSON and safetensors headers only, never weights or code. Needs no mlx.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from core.errors import BadModel, ModelNotFound, UnsupportedModel
from core.models.files import safetensors
from core.models.files.block_map import BlockMap, read_map
from core.models.files.checked_files import OTHER_VERSION, check_files, judged, name_of, read_bytes
from core.models.files.hub_origin import HubOrigin, read_origin
from core.models.files.layout import Layout, layout_of
from core.models.files.model_settings import ADAPTER_NAME, ModelSettings, settings_of
from core.text import clean_text


class ModelFolder(NamedTuple):
    """Snapshot of a model folder."""

    path: Path
    name: str
    settings: ModelSettings
    headers: Mapping[str, safetensors.SafetensorsHeader]  # by weight file name
    weight_file_bytes: int  # of all weight files, headers included
    # hex SHA-256 over settings, tokenizer and safetensors index (without an index, each file's header); equal on two
    # Macs with the same model, whatever the folder's name
    fingerprint: str
    there: BlockMap | None  # blocks on this disk; None: complete
    hub: HubOrigin | None  # source of missing blocks, if known

    @property
    def config(self) -> dict[str, Any]:
        return self.settings.config

    @property
    def tensors(self) -> dict[str, safetensors.Tensor]:
        return {name: tensor for header in self.headers.values() for name, tensor in header.tensors.items()}

    def layout(self) -> Layout:
        """Byte sizes of the layers. Raises BadModel if the tensors aren't a stack of layers."""
        with judged(self.path):
            tokenizer = self.settings.contents.get("tokenizer.json", b"")
            return layout_of(self.config, self.tensors, self.name, len(tokenizer))


def read_settings(directory: Path) -> ModelSettings:
    """Read the small files of a model folder, within size limits. Raises ModelNotFound, BadModel, UnsupportedModel."""
    if directory.is_file():
        what = f"{clean_text(directory.name)} is a file; a model is a folder with config.json and safetensors weights."
        raise UnsupportedModel(what, OTHER_VERSION)
    if not directory.is_dir():
        raise ModelNotFound(f"The model folder {directory} doesn't exist.")
    check_files(directory)
    contents, files = _contents(directory), [file.name for file in directory.iterdir()]
    if "config.json" not in contents:
        inner = chain(directory.glob("*/config.json"), directory.glob("*/*/config.json"))
        files += [str(file.relative_to(directory)) for file in inner]
        if (adapter := read_bytes(directory, ADAPTER_NAME)) is not None:
            contents[ADAPTER_NAME] = adapter
    return settings_of(name_of(directory), contents, files)


class HeaderCache:
    """Headers of weight files, each read again when its file changes."""

    def __init__(self) -> None:
        self._read: dict[Path, tuple[tuple[int, int, int], bytes, safetensors.SafetensorsHeader]] = {}

    def of(self, file: Path) -> tuple[bytes, safetensors.SafetensorsHeader]:
        """The header of a file, as bytes and parsed. Raises BadModel."""
        status = file.stat()
        stamp = (status.st_size, status.st_mtime_ns, status.st_ino)
        if (known := self._read.get(file)) is None or known[0] != stamp:
            content = safetensors.header_bytes(file)
            known = self._read[file] = (stamp, content, safetensors.parse_header(file, content))
        return known[1:]


def read_folder(directory: Path, cache: HeaderCache | None = None) -> ModelFolder:
    """Read and check a model folder. Raises ModelNotFound, BadModel.

    >>> folder = read_folder(Path("~/models/Qwen3-4B-4bit").expanduser())
    >>> folder.config["model_type"], folder.layout().layers
    ('qwen3', 36)
    """
    with judged(directory):
        if any("\ud800" <= char < "\ue000" for char in str(directory)):
            raise BadModel(f"{name_of(directory)} has a path that isn't valid UTF-8.", "Rename its folder.")
        settings = read_settings(directory)
        name = settings.name
        index = safetensors.parse_index(settings.contents.get(safetensors.INDEX_NAME), name)
        digest = _digest_of(settings.contents)
        headers: dict[str, safetensors.SafetensorsHeader] = {}
        files, cache = safetensors.weight_files(directory, index), cache or HeaderCache()
        for number, file in enumerate(files):
            content, headers[file.name] = cache.of(file)
            if index is None:
                _add(digest, f"header {number}", content)
        safetensors.check_tensors(headers, index, name)
        return ModelFolder(
            path=directory,
            name=name,
            settings=settings,
            headers=headers,
            weight_file_bytes=sum(file.stat().st_size for file in files),
            fingerprint=digest.hexdigest(),
            there=read_map(directory),
            hub=read_origin(directory),
        )


def _contents(directory: Path) -> dict[str, bytes]:
    """The small files that exist; without an index that is left over."""
    found = {name: read_bytes(directory, name) for name in safetensors.DECIDING_FILES}
    contents = {name: content for name, content in found.items() if content is not None}
    if safetensors.INDEX_NAME in contents and not safetensors.read_index(directory):
        del contents[safetensors.INDEX_NAME]
    return contents


def _digest_of(contents: Mapping[str, bytes]) -> hashlib._Hash:
    """The fingerprint so far, of the small files."""
    digest = hashlib.sha256(b"macluster/1 model\0")
    for name, content in contents.items():
        _add(digest, name, content)
    return digest


def _add(digest: hashlib._Hash, name: str, content: bytes) -> None:
    # with the lengths, so that different sets of files never give the same bytes
    digest.update(f"{name}\0{len(content)}\0".encode() + content)
