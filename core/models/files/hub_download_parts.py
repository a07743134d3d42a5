"""Downloads parts of a hub model by range requests: first settings and headers, then only the wanted weight blocks.

The hub has no hash for a range. A block received over TLS is recorded with its SHA-256; a completed file is checked
against the hub's own hash.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from io import BytesIO
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple

from huggingface_hub.errors import RevisionNotFoundError

from core.errors import BadModel, TransferError
from core.models.files.block_map import BLOCK_BYTES, BlockMap, FileFacts, blocks_by_file, hash_at
from core.models.files.block_writer import BlockWriter
from core.models.files.byte_rate_limit import ByteRateLimit
from core.models.files.checked_files import OTHER_VERSION, POINTER
from core.models.files.compared_hashes import Compared, read_compared
from core.models.files.hub_download_messages import BeginOrder, Fetched, PartsOrder
from core.models.files.hub_files import HubFile, model_of
from core.models.files.hub_origin import HubOrigin, write_origin
from core.models.files.hub_reader import HubReader, Patience, RemoteFile, check_endpoint, in_threads
from core.models.files.model_settings import ADAPTER_NAME, SMALL_FILES
from core.models.files.parts import Part, ranges
from core.models.files.safetensors import MAX_HEADER_BYTES
from core.rates import Throttle
from core.settings import MIB
from core.trust.private_files import private_folder

RANGE_BLOCKS: Final = 32
COMMIT_S: Final = 1.0
MAX_SMALL_BYTES: Final = 64 * MIB

Report = Callable[[Fetched], None]


class Run(NamedTuple):
    """Blocks [start, stop) of a file, fetched as one range."""

    name: str
    start: int
    stop: int


def begin(order: BeginOrder, report: Report) -> None:
    """Download the settings and the header of each weight file. Raises TransferError, and huggingface_hub's errors."""
    check_endpoint()
    patience = Patience(report)
    model = model_of(order.repo, order.revision, patience)
    origin = model.origin
    files = [f for f in model.files if f.name in SMALL_FILES or f.name.endswith(".safetensors")]
    below = Path(order.below)
    reader = HubReader(origin, patience)
    total = sum(min(file.size, BLOCK_BYTES) if _is_weights(file) else file.size for file in files)
    contents: dict[str, bytes] = {}

    def fetch(file: HubFile) -> None:
        contents[file.name] = _beginning(reader, file)

    def tell() -> None:
        report(Fetched(done=min(total, sum(map(len, list(contents.values())))), total=total))

    for are_weights in (False, True):
        in_threads([partial(fetch, f) for f in files if _is_weights(f) == are_weights], patience.stop, tell)
        model.check(contents)
    contents.pop(ADAPTER_NAME, None)
    facts = {file.name: _facts(file, contents[file.name]) for file in files if file.name in contents}
    place = below / f"hub-{hashlib.sha256(f'{origin.repo}@{origin.commit}'.encode()).hexdigest()[:32]}"
    for folder in (below, place):
        private_folder(folder, TransferError)
    writer = BlockWriter(place, facts)
    try:
        for name, content in contents.items():
            for block in facts[name].blocks:
                piece = content[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES]
                if len(piece) == facts[name].length(block):
                    writer.put(name, block, piece)
    finally:
        writer.close()
    write_origin(place, origin)
    report(Fetched(done=total, total=total, place=str(place)))


def _is_weights(file: HubFile) -> bool:
    return file.is_large and file.name.endswith(".safetensors")


def _beginning(reader: HubReader, file: HubFile) -> bytes:
    """All of a small file, or the blocks of a large file that hold its header."""
    if not _is_weights(file):
        if file.size > MAX_SMALL_BYTES:
            raise TransferError(f"{file.name} has {file.size} bytes on the hub.", "Choose another repository.")
        content = b"".join(reader.read(file, 0, file.size))
        file.check(BytesIO(content))
        return content
    content = b"".join(reader.read(file, 0, min(BLOCK_BYTES, file.size)))
    if content.startswith(POINTER):
        file.check(BytesIO(content))
    length = struct.unpack("<Q", content[:8])[0] if len(content) >= 8 else 0
    if not 2 <= length <= min(MAX_HEADER_BYTES, file.size - 8):
        what = f"{file.name} is not a safetensors file: its header claims {length} bytes."
        raise BadModel(what, OTHER_VERSION)
    end = min(-(-(8 + length) // BLOCK_BYTES) * BLOCK_BYTES, file.size)
    return content + b"".join(reader.read(file, len(content), end))


def _facts(file: HubFile, content: bytes) -> FileFacts:
    return FileFacts(size=file.size, sha256=file.etag if file.is_large else hashlib.sha256(content).hexdigest())


def bring(order: PartsOrder, report: Report, pace: ByteRateLimit) -> None:
    """Download the missing blocks of `parts`. Raises as `begin`; blocks received by then are kept."""
    check_endpoint()
    folder = Path(order.folder)
    writer = BlockWriter(folder, order.files)
    work = _Bringing(writer, read_compared(folder, order.files), order.origin, order.parts, report, pace)
    try:
        work.run()
    except RevisionNotFoundError as error:
        what = f"The commit of {order.origin.repo} that this download began with is no longer on the hub."
        cure = f"Start again from the current commit: `macluster download --split {order.origin.repo}`."
        raise TransferError(what, cure) from error
    finally:
        writer.close()
    if not writer.map.missing_bytes:
        report(Fetched(done=work.total, total=work.total, checking=True))
    writer.finish()


class _Bringing:
    """Fetches several ranges at a time; syncs received blocks at the end of each range and every COMMIT_S seconds."""

    def __init__(
        self,
        writer: BlockWriter,
        compared: Compared,
        origin: HubOrigin,
        parts: Iterable[Part],
        report: Report,
        pace: ByteRateLimit,
    ) -> None:
        self._writer, self._compared, self._origin, self._report = writer, compared, origin, report
        self._patience, self._commits = Patience(report), Throttle(COMMIT_S)
        self._reader = HubReader(origin, self._patience, pace)
        self._runs = list(runs_of(writer.map, parts))
        self.total = writer.map.nbytes_of(blocks_by_file(parts))
        self._before = self.total - writer.map.nbytes_of(writer.map.missing(parts))

    def run(self) -> None:
        """Fetch all ranges. Raises the first error after the other fetches have ended."""
        self._commit_and_report()  # what was there before, also of a download that takes less than a second
        in_threads([partial(self._bring, run) for run in self._runs], self._patience.stop, self._commit_and_report)
        self._commit_and_report()

    def _bring(self, run: Run) -> None:
        facts = self._writer.map.files[run.name]
        file = RemoteFile(run.name, facts.size, facts.sha256)
        begin, end = run.start * BLOCK_BYTES, min(run.stop * BLOCK_BYTES, facts.size)
        held, block = bytearray(), run.start
        try:
            for piece in self._reader.read(file, begin, end):
                held += piece
                while len(held) >= facts.length(block):
                    self._put(run.name, block, bytes(held[: facts.length(block)]))
                    del held[: facts.length(block)]
                    block += 1
                    if block == run.stop:
                        break
        finally:
            self._writer.commit()

    def _put(self, name: str, block: int, data: bytes) -> None:
        if not self._writer.put(name, block, data, hash_at(self._compared.get(name, b""), block)):
            what = f"The blocks of {name} from {self._origin.repo} do not match the hub's hash of the whole file."
            raise TransferError(what, "Try again, without a mirror if HF_ENDPOINT is set.")

    def _commit_and_report(self) -> None:
        if self._commits.take(monotonic()):
            self._writer.commit()
        self._report(Fetched(done=self._before + self._writer.committed_bytes, total=self.total))


def runs_of(there: BlockMap, parts: Iterable[Part]) -> Iterator[Run]:
    """Missing blocks of `parts` in ranges of at most RANGE_BLOCKS, file by file."""
    for name, missing in sorted(there.missing(parts).items()):
        for start, stop in ranges(sorted(missing)):
            for at in range(start, stop, RANGE_BLOCKS):
                yield Run(name, at, min(at + RANGE_BLOCKS, stop))
