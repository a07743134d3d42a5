"""How each model may be split: examined once by a child process, then remembered, in memory and on disk."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeVar, get_args

import msgspec

from core.errors import BadModel, Problem, TrustError, UnsupportedModel, error_from
from core.events import Plan, WireType
from core.models.files.catalog import ModelEntry
from core.models.files.checked_files import OTHER_VERSION
from core.models.files.model_folder import read_folder
from core.models.files.parts import Part
from core.models.files.sandbox import TRY_AGAIN, Job, run_child
from core.models.slicing.split_profile import SplitProfile
from core.requests.plans import PlanPreview
from core.settings import MIB, Home
from core.trust.file_formats import JsonFile
from core.trust.private_files import private_folder
from core.version import RELEASE, package_version

SECONDS: Final = 60.0
RSS_BYTES: Final = 2048 * MIB
ANSWER_BYTES: Final = 16 * MIB
# memory of a model's parsed headers as Python objects, per byte of header
_PER_HEADER_BYTE: Final = 16


FileParts = tuple[tuple[str, int, int], ...]

_T = TypeVar("_T")

_FILE: Final = JsonFile[SplitProfile](Home.split_profiles, SplitProfile, limit=ANSWER_BYTES)


class SplitProfiles:
    """Profiles in `folder`, a file for every model and version of the examining code."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._by = folder, f"{package_version('mlx-lm')}-{RELEASE}"
        self._found: dict[str, SplitProfile] = {}
        self._one_child = asyncio.Lock()

    async def of(self, entry: ModelEntry) -> SplitProfile:
        """The split profile of a model; the first call starts a child and takes seconds. Raises ModelNotFound, and
        BadModel or UnsupportedModel for a model that mlx-lm can't build or run.
        """
        async with self._one_child:
            if found := await asyncio.to_thread(self.known, entry):
                return found
            found = _checked(await _in_child(entry, (), SplitProfile), entry)
            await asyncio.to_thread(self._remember, entry, found)
            return found

    def known(self, entry: ModelEntry) -> SplitProfile | None:
        if entry.fingerprint not in self._found:
            # a file that is missing, damaged, newer or readable by others counts as absent
            with contextlib.suppress(TrustError, UnsupportedModel):
                self._found[entry.fingerprint] = _checked(_FILE.read(self._file(entry)), entry)
        return self._found.get(entry.fingerprint)

    async def with_parts(self, entry: ModelEntry, preview: PlanPreview) -> PlanPreview:
        plan = preview.plan or preview.draft
        return msgspec.structs.replace(preview, parts=await self.parts(entry, plan)) if plan else preview

    async def parts(self, entry: ModelEntry, plan: Plan) -> tuple[FileParts, ...]:
        ends = [("e" * (s.start == 0)) + ("o" * (s.device_id == plan.output)) for s in plan.stages]
        slices = [f"{s.start}:{s.stop}:{end}" for s, end in zip(plan.stages, ends, strict=True)]
        return await self.slices(entry, tuple(slices))

    async def slices(self, entry: ModelEntry, slices: tuple[str, ...]) -> tuple[FileParts, ...]:
        """Bytes that each of `slices` reads of the model's files, in the form of `core.models.slicing.examine`.
        Raises like `of`.
        """
        async with self._one_child:
            stages = await _in_child(entry, slices, list[list[Part]])
        return tuple(tuple((p.file, p.begin, p.end) for p in stage) for stage in stages)

    def _remember(self, entry: ModelEntry, found: SplitProfile) -> None:
        self._found[entry.fingerprint] = found
        # if the disk is full, the child runs again after the next start
        with contextlib.suppress(TrustError):
            for folder in (self._folder.parent, self._folder):
                private_folder(folder)
            _FILE.write(self._file(entry), found)

    def _file(self, entry: ModelEntry) -> Path:
        return self._folder / f"{entry.fingerprint}-{self._by}.json"


async def _in_child(entry: ModelEntry, words: tuple[str, ...], kind: type[_T]) -> _T:
    """Examine a model in a child, which ends if this call is cancelled."""
    stop = threading.Event()
    try:
        return await asyncio.to_thread(_answer, entry, words, kind, stop)
    finally:
        stop.set()


def _answer(entry: ModelEntry, words: tuple[str, ...], kind: type[_T], stop: threading.Event) -> _T:
    directory = Path(entry.path)
    headers = sum(header.nbytes for header in read_folder(directory).headers.values())
    job = Job(
        module="core.models.slicing.examine",
        arguments=(str(directory), *words),
        subject=f"Examining {entry.name}",
        fix=TRY_AGAIN,
        seconds=SECONDS,
        rss_bytes=RSS_BYTES + _PER_HEADER_BYTE * headers,
        answer_bytes=ANSWER_BYTES,
    )
    status, answer = run_child(job, stop=stop)
    try:
        if status == 0:
            return msgspec.json.decode(answer, type=kind)
        problem = msgspec.json.decode(answer, type=Problem)
    except msgspec.MsgspecError as error:
        raise BadModel(f"Examining {entry.name} fails (exit status {status}).", TRY_AGAIN) from error
    raise error_from(problem)


def _checked(profile: SplitProfile, entry: ModelEntry) -> SplitProfile:
    if profile.layers != entry.layers:
        what = f"{entry.name} has {entry.layers} layers in its files, mlx-lm runs {profile.layers}."
        raise UnsupportedModel(what, OTHER_VERSION)
    edges = (0, *profile.cuts, profile.layers)
    sent = [profile.boundary_bytes, *(profile.wire_bytes.get(wire, ()) for wire in get_args(WireType))]
    counts = {len(profile.caches), *([len(each) for each in sent] if any(sent) else [])}
    if any(a >= b for a, b in pairwise(edges)) or counts != {profile.layers}:
        raise UnsupportedModel(f"Examining {entry.name} gave impossible results.", OTHER_VERSION)
    return profile
