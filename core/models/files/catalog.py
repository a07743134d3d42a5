"""Lists the models on this Mac's disk from JSON and safetensors headers; never reads weights or code."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple

import msgspec

from core.errors import BadModel, ModelError, ModelNotFound, Problem, UsageError, error_from
from core.events import Value
from core.models.files.checked_files import judged, name_of
from core.models.files.hub_origin import HubOrigin
from core.models.files.layers_on_disk import layers_here
from core.models.files.layout import Layout
from core.models.files.model_folder import HeaderCache, read_folder
from core.models.files.model_info import context_of, quantization_of
from core.models.files.suitability import check_suitable, notes_on
from core.settings import MIB, Home
from core.text import clean_text
from core.trust.file_formats import JsonFile
from core.version import program_version

SAVE_EVERY_S: Final = 60.0
_WEIGHTS: Final = (".safetensors", ".gguf", ".npz")
_PATHS: Final = ("/", "./", "../", "~")


class ModelEntry(Value, frozen=True, kw_only=True):
    """A model on disk."""

    name: str  # full repository id in a hub cache, else the folder's name
    path: str
    model_type: str
    layers: int
    total_bytes: int  # weights of the language model
    quantization: str  # "4-bit", "4–8-bit", ... or the weights' dtype
    context_max: int  # tokens
    fingerprint: str  # equal on two Macs that hold the same files
    missing_bytes: int = 0  # of its files, not on this disk
    disk_bytes: int = 0  # of its files, on this disk
    layers_here: tuple[tuple[int, int], ...] = ()  # half-open ranges of the layers on this disk
    hub: HubOrigin | None = None  # where the rest can be fetched, if that is known
    notes: tuple[str, ...] = ()  # sentences to read before loading


class BrokenModel(Value, frozen=True, kw_only=True):
    """A folder with a model, or part of one, that cannot be used, and the reason."""

    name: str
    path: str
    problem: Problem


Listed = list[ModelEntry | BrokenModel]
_Read = tuple[ModelEntry, Layout]


# the version of macluster that read them; stamp, entry and layout of each model
_Kept = tuple[str, tuple[tuple[str, ModelEntry, Layout], ...]]
_FILE: Final = JsonFile[_Kept](Home.catalog, _Kept, limit=64 * MIB)


class _Known(NamedTuple):
    """A folder as it was read when it had this stamp."""

    stamp: str
    outcome: _Read | Problem


class Catalog:
    """The models below `roots`: model folders, folders of them, or a hub cache. Rereads only changed folders, also
    after a start, with what was read kept in the file `kept`.
    """

    def __init__(self, roots: Sequence[Path], kept: Path | None = None) -> None:
        self._roots = tuple(roots)
        self._known: dict[Path, _Known] = {}
        self._changing, self._headers = Path(), HeaderCache()  # the folder that changed last, and its headers
        self._kept, self._has_news, self._saved_at = kept, False, -inf
        self._found: dict[Path, ModelEntry | BrokenModel] = {}

    @property
    def so_far(self) -> Listed:
        """The models found so far by the running survey, or by the last one."""
        return _sorted(dict(self._found))

    def survey(self) -> Listed:
        """All models by name, then the broken ones. A partial copy of a complete model is left out."""
        if self._kept and not self._known:
            self._restore(self._kept)
        self._found = found = dict[Path, ModelEntry | BrokenModel]()
        for root in self._roots:
            for directory, name in _candidates(root):
                real = Path(os.path.realpath(directory))
                if real not in found:
                    found[real] = msgspec.structs.replace(self._one(directory), name=name)
        if self._kept and self._has_news and monotonic() > self._saved_at + SAVE_EVERY_S:
            self._save(self._kept)
        return _sorted(found)

    def find(self, model: str, listed: Listed | None = None) -> ModelEntry:
        """Find a model by its full name, by the last part of it if unambiguous, or by its folder, among those `listed`
        by a survey just now. Raises UsageError if several models match, ModelNotFound, or the ModelError of a broken
        model.
        """
        if is_path(model):
            return self._at(Path(os.path.expanduser(model)))
        listed = self.survey() if listed is None else listed
        named = [f for f in listed if f.name == model] or [f for f in listed if short_name(f.name) == model]
        usable = [f for f in named if isinstance(f, ModelEntry)]
        if len({entry.fingerprint for entry in usable}) > 1:
            names = {entry.name for entry in usable}
            which = sorted(names) if len(names) == len(usable) else sorted(entry.path for entry in usable)
            raise UsageError(f"{model!r} may be {' or '.join(which)}.", "Give the full name, or the directory.")
        if usable:
            return usable[0]
        for broken in named:
            if isinstance(broken, BrokenModel):
                raise error_from(broken.problem)
        if os.path.isdir(model):
            return self._at(Path(model))
        raise ModelNotFound(f"This Mac has no model {clean_text(model)!r}.")

    def layout(self, directory: Path) -> Layout:
        """Byte sizes of the model's layers. Raises ModelNotFound, BadModel, UnsupportedModel."""
        return self._read(directory)[1]

    def layout_of(self, entry: ModelEntry) -> Layout | None:
        """The layout that was read with `entry`, without a look at the disk; None if its folder was read again."""
        match self._known.get(Path(entry.path)):
            case _Known(outcome=(ModelEntry(fingerprint=entry.fingerprint), layout)):
                return layout
        return None

    def _at(self, directory: Path) -> ModelEntry:
        inner = list(_candidates(directory))
        return self._read(inner[0][0] if len(inner) == 1 else directory)[0]

    def _one(self, directory: Path) -> ModelEntry | BrokenModel:
        try:
            return self._read(directory)[0]
        except ModelError as error:
            return BrokenModel(
                name=name_of(directory), path=clean_text(str(directory)), problem=_explained(directory, error)
            )

    def _read(self, directory: Path) -> _Read:
        stamp = _stamp(directory)
        known = self._known.get(directory)
        if known is None or known.stamp != stamp:
            if known and directory != self._changing:
                self._changing, self._headers = directory, HeaderCache()
            cache = self._headers if known else None
            known = self._known[directory] = _Known(stamp, _outcome(directory, cache))
            self._has_news = True
        if isinstance(known.outcome, Problem):
            raise error_from(known.outcome)
        return known.outcome

    def _restore(self, path: Path) -> None:
        version, models = _FILE.try_to_read(path) or ("", ())
        for stamp, entry, layout in models if version == program_version() else ():
            self._known.setdefault(Path(entry.path), _Known(stamp, (entry, layout)))

    def _save(self, path: Path) -> None:
        self._saved_at, self._has_news = monotonic(), False
        known = self._known.values()
        models = tuple((stamp, *outcome) for stamp, outcome in known if isinstance(outcome, tuple))
        _FILE.try_to_write(path, (program_version(), models))


def _sorted(found: Mapping[Path, ModelEntry | BrokenModel]) -> Listed:
    whole = {f.fingerprint for f in found.values() if isinstance(f, ModelEntry) and not f.missing_bytes}
    listed = [
        f for f in found.values() if isinstance(f, BrokenModel) or not f.missing_bytes or f.fingerprint not in whole
    ]
    return sorted(listed, key=lambda f: (isinstance(f, BrokenModel), f.name.casefold(), f.path))


def is_path(model: str) -> bool:
    return model.startswith(_PATHS)


def short_name(name: str) -> str:
    """The name without its owner: "Qwen3-4B-4bit" for "mlx-community/Qwen3-4B-4bit"."""
    return name.rpartition("/")[2]


def read_model(directory: Path, cache: HeaderCache | None = None) -> tuple[ModelEntry, Layout]:
    """Read a model's entry and layout. Raises ModelNotFound, BadModel, UnsupportedModel."""
    with judged(directory):
        folder = read_folder(directory, cache)
        check_suitable(folder.settings)
        layout, there, tensors = folder.layout(), folder.there, folder.tensors
        entry = ModelEntry(
            name=folder.name,
            path=str(directory),
            model_type=folder.config["model_type"],
            layers=layout.layers,
            total_bytes=layout.total_bytes,
            quantization=quantization_of(folder.config, tensors),
            context_max=context_of(folder.config),
            fingerprint=folder.fingerprint,
            missing_bytes=there.missing_bytes if there else 0,
            disk_bytes=there.there_bytes if there else folder.weight_file_bytes,
            layers_here=layers_here(layout.layers, folder.headers, there),
            hub=folder.hub,
            notes=notes_on(folder.settings),
        )
    return entry, layout


def _outcome(directory: Path, cache: HeaderCache | None) -> _Read | Problem:
    try:
        return read_model(directory, cache)
    except ModelError as error:
        return Problem(kind=error.problem.kind, what=clean_text(error.what), fix=clean_text(error.fix))


def _explained(directory: Path, error: ModelError) -> Problem:
    repository = directory.parent.parent if directory.parent.name == "snapshots" else directory
    if isinstance(error, BadModel) and _is_begun(repository):
        fix = "Let the download finish, or continue it: d in the list of models."
        return BadModel(f"{error.what} Its download is not finished.", fix).problem
    return error.problem


def _stamp(directory: Path) -> str:
    """A value that changes when any file of the folder does; "" without a folder."""
    found = []
    try:
        with os.scandir(directory) as files:
            for file in files:
                # a dangling link isn't a file yet
                with contextlib.suppress(OSError):
                    status = file.stat()
                    found.append((file.name, status.st_size, status.st_mtime_ns, status.st_ino))
    except (OSError, ValueError):
        return ""
    return hashlib.sha256(ascii(sorted(found)).encode()).hexdigest()


def _candidates(root: Path) -> Iterator[tuple[Path, str]]:
    """Folders at or below `root` that hold a model or a part of one, or a publisher's models; the models' names."""
    children = sorted(_folders(root))
    if root.name.startswith("models--"):
        yield from _named(_current_snapshot(root))
    elif os.path.exists(root / "config.json") or {"blobs", "manifests"} <= {child.name for child in children}:
        yield from _named([root])
    else:
        for child in children:
            if child.name.startswith("models--"):
                yield from _named(_current_snapshot(child) or ([child] if _is_begun(child) else []))
            elif _holds_model(child):
                yield from _named([child])
            elif not child.name.startswith("."):
                inner = [each for each in sorted(_folders(child)) if _holds_model(each)]
                yield from ((each, f"{name_of(child)}/{name_of(each)}") for each in inner)


def _named(folders: Sequence[Path]) -> list[tuple[Path, str]]:
    return [(folder, name_of(folder)) for folder in folders]


def _current_snapshot(repository: Path) -> list[Path]:
    """The snapshot of a hub cache repository to use: that of `main`, else the newest."""
    ref = repository / "refs" / "main"
    try:
        main = ref.read_text("utf-8", "replace").strip() if ref.is_file() and ref.stat().st_size < 200 else ""
        ranks = [
            (os.path.exists(s / "config.json"), s.name == main, s.stat().st_mtime, s)
            for s in _folders(repository / "snapshots")
        ]
    except OSError:  # deleted meanwhile
        return []
    return [max(ranks)[-1]] if ranks else []


def _is_begun(repository: Path) -> bool:
    """Whether a download into this hub cache repository is unfinished. One that was refused left no bytes."""
    begun = (repository / "blobs").glob("*.incomplete") if repository.name.startswith("models--") else ()
    with contextlib.suppress(OSError):  # finished meanwhile
        return any(file.stat().st_size for file in begun)
    return True


def _holds_model(directory: Path) -> bool:
    try:
        return any(file.name == "config.json" or file.suffix in _WEIGHTS for file in directory.iterdir())
    except OSError:
        return False


def _folders(parent: Path) -> list[Path]:
    try:
        return [child for child in parent.iterdir() if os.path.isdir(child)]
    except (OSError, ValueError):
        return []
