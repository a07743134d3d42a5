"""Reads byte ranges of files of one hub commit over HTTP. Runs in the download child.

A response that ends early is continued from the next byte; a response with other bytes than requested is rejected. The
token goes only to the scheme and host of HF_ENDPOINT, never to a storage host.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from time import monotonic, time
from typing import Final, NamedTuple, TypeVar
from urllib.parse import urljoin, urlsplit

import httpx2
from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError
from huggingface_hub.utils._headers import build_hf_headers
from huggingface_hub.utils._http import get_session, hf_raise_for_status

from core.address import is_loopback
from core.errors import TransferError
from core.models.files.byte_rate_limit import ByteRateLimit
from core.models.files.hub_download_messages import Fetched
from core.models.files.hub_origin import HubOrigin
from core.settings import MIB

PIECE_BYTES: Final = MIB // 8
REPLY_S: Final = 30.0
TRIES: Final = 6
FIRST_WAIT_S: Final = 0.5
LONGEST_WAIT_S: Final = 300.0
MAX_REDIRECTS: Final = 5
CONNECTIONS: Final = 4
MEANWHILE_S: Final = 0.25
LOOK_S: Final = 0.5
_RANGE: Final = re.compile(r"bytes (\d{1,20})-(\d{1,20})/(\d{1,20})")
_SPENT: Final = re.compile(r";\s*r=0\s*;\s*t=(\d{1,6})\b")  # no request left, and the seconds until the next
_FOR_GOOD: Final = (RepositoryNotFoundError, RevisionNotFoundError, EntryNotFoundError)

_T = TypeVar("_T")


class RemoteFile(NamedTuple):
    """A file to read: size in bytes and hash, hex (SHA-256 of large files, else git's SHA-1)."""

    name: str
    size: int
    etag: str


class BadReply(TransferError):
    """The response doesn't match the request; a retry may work."""


class Patience:
    """Retries a request up to TRIES times, after the delay that the hub reports, or a growing one, until `stop`."""

    def __init__(self, report: Callable[[Fetched], None]) -> None:
        self.stop, self._report = threading.Event(), report

    def with_retries(self, ask: Callable[[], _T]) -> _T:
        """Result of `ask`. Raises its last error."""
        for failed in range(TRIES):
            try:
                return ask()
            except (httpx2.TransportError, HfHubHTTPError, BadReply) as error:
                self.wait(error, failed + 1)
        return ask()

    def wait(self, error: Exception, failed: int) -> None:
        """Wait after `failed` failures in a row. Raises `error` if a retry cannot help."""
        after_s = _wait_of(error)
        if isinstance(error, _FOR_GOOD) or failed >= TRIES or after_s is None or self.stop.is_set():
            raise error
        wait_s = min(max(after_s, FIRST_WAIT_S * 2 ** (failed - 1)), LONGEST_WAIT_S)
        if after_s:
            self._report(Fetched(waits_until=time() + wait_s))
        self.stop.wait(wait_s)


def in_threads(jobs: Iterable[Callable[[], object]], stop: threading.Event, meanwhile: Callable[[], None]) -> None:
    """Run `jobs`, CONNECTIONS at a time, and `meanwhile`. Raises the first error once all have ended, by `stop`."""
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        coming = {pool.submit(job) for job in jobs}
        try:
            while coming:
                meanwhile()
                done, coming = wait(coming, MEANWHILE_S, FIRST_EXCEPTION)
                for each in done:
                    each.result()
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise


class HubReader:
    """Reads ranges, with one lookup per file until its URL stops working. Thread-safe."""

    def __init__(self, origin: HubOrigin, patience: Patience, pace: ByteRateLimit | None = None) -> None:
        self._origin, self._patience = origin, patience
        self._pace, self._turn = pace or ByteRateLimit(), threading.Lock()
        self._places: dict[str, str] = {}

    def read(self, file: RemoteFile, begin: int, end: int) -> Iterator[bytes]:
        """Yield the bytes [begin, end) of a file in pieces. Raises TransferError, and huggingface_hub's errors."""
        failed = 0
        while begin < end:
            try:
                for piece in self._reply(file, begin, end):
                    begin += len(piece)
                    failed = 0
                    yield piece
            except (httpx2.TransportError, HfHubHTTPError, BadReply) as error:
                failed += 1
                self._places.pop(file.name, None)
                self._patience.wait(error, failed)

    def _reply(self, file: RemoteFile, begin: int, end: int) -> Iterator[bytes]:
        with reply_from(self._place(file), file.name, {"Range": f"bytes={begin}-{end - 1}"}) as reply:
            _check(reply, file, begin, end)
            yield from self._pieces(reply, file, end - begin)

    def _pieces(self, reply: httpx2.Response, file: RemoteFile, expected: int) -> Iterator[bytes]:
        for piece in reply.iter_raw(PIECE_BYTES):
            if len(piece) > expected:
                raise BadReply(f"The hub sent more of {file.name} than announced.", "Choose another repository.")
            expected -= len(piece)
            yield piece
            self._rest(len(piece))
            if self._patience.stop.is_set():
                raise TransferError("The download was stopped.", "The next download resumes there.")
        if expected:
            raise BadReply(f"The hub sent less of {file.name} than announced.", "Try again later.")

    def _rest(self, nbytes: int) -> None:
        """Wait as long as the rate limit, which may change meanwhile, requires after `nbytes` more bytes."""
        with self._turn:
            until = self._pace.came(nbytes, monotonic())
        while left_s := self._pace.left_s(until, monotonic()):
            if self._patience.stop.wait(min(left_s, LOOK_S)):
                return

    def _place(self, file: RemoteFile) -> str:
        """Current URL of the file. Raises TransferError if its hash there differs."""
        if place := self._places.get(file.name):
            return place
        url = hf_hub_url(self._origin.repo, file.name, revision=self._origin.commit)
        said = get_hf_file_metadata(url, headers=build_hf_headers())
        etag = said.etag or ""
        is_other = (
            (said.commit_hash and said.commit_hash != self._origin.commit)
            or (said.size is not None and said.size != file.size)
            or (len(etag) == len(file.etag) == 64 and etag != file.etag)
        )
        if is_other:
            what = f"{file.name} of {self._origin.repo} has changed on the hub."
            raise TransferError(what, "Download the model again: the files here belong to an older version.")
        self._places[file.name] = place = redirected(url, said.location)
        return place


@contextmanager
def reply_from(place: str, name: str, headers: Mapping[str, str]) -> Iterator[httpx2.Response]:
    """The successful response to a GET of `name`, uncompressed. Its body is not read yet, an error's body never. Raises
    TransferError, and huggingface_hub's errors.
    """
    for _ in range(MAX_REDIRECTS):
        sent = {**headers_for(place), "Accept-Encoding": "identity", **headers}
        with get_session().stream("GET", place, headers=sent, timeout=REPLY_S, follow_redirects=False) as reply:
            if reply.has_redirect_location:
                place = redirected(place, reply.headers["location"])
                continue
            if reply.is_error:
                hf_raise_for_status(httpx2.Response(reply.status_code, headers=reply.headers, request=reply.request))
            if reply.headers.get("content-encoding", "identity") != "identity":
                raise BadReply(f"The hub sent {name} compressed.")
            yield reply
            return
    raise BadReply(f"The hub redirects requests for {name} in a circle.")


def headers_for(place: str) -> dict[str, str]:
    """Headers, with the token only if `place` is the hub."""
    headers = {name.lower(): value for name, value in build_hf_headers().items()}
    if urlsplit(place)[:2] != urlsplit(constants.ENDPOINT)[:2]:
        headers.pop("authorization", None)
    return headers


def check_endpoint() -> None:
    """Raise TransferError unless the hub is reached over TLS, because a range has no hash of its own."""
    if not _is_sealed(constants.ENDPOINT):
        what = "HF_ENDPOINT is no https address: the network could change a part of a model unnoticed."
        raise TransferError(what, "Set it to an https address, or download the whole model: its hash is known.")


def redirected(place: str, location: str) -> str:
    """Redirect target of a response from `place`. Raises TransferError if it leaves TLS."""
    to = urljoin(place, location)
    if _is_sealed(place) and not _is_sealed(to):
        raise TransferError("The hub redirects to an address without TLS.", "Check HF_ENDPOINT.")
    return to


def _is_sealed(address: str) -> bool:
    parts = urlsplit(address)
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))


def _check(reply: httpx2.Response, file: RemoteFile, begin: int, end: int) -> None:
    """Check that a response has exactly those bytes. Raises TransferError if a retry cannot help."""
    is_whole = (begin, end) == (0, file.size)
    if reply.status_code == 200:
        if not is_whole:
            cure = "Download the whole model, or use the hub itself, without HF_ENDPOINT."
            raise TransferError(f"The hub, or its mirror, doesn't support range requests ({file.name}).", cure)
        said: tuple[str, ...] = (reply.headers.get("content-length") or str(file.size),)
        meant: tuple[str, ...] = (str(file.size),)
    else:
        found = _RANGE.fullmatch(reply.headers.get("content-range", ""))
        said, meant = found.groups() if found else (), (str(begin), str(end - 1), str(file.size))
    if said != meant:
        raise BadReply(f"The hub sent other bytes of {file.name} than requested.", "Try again later.")


def _wait_of(error: Exception) -> float | None:
    """Minimum delay in seconds; None if a retry cannot help."""
    if not isinstance(error, HfHubHTTPError):
        return 0.0
    status = error.response.status_code
    if status in (408, 429) or status >= 500:
        headers = error.response.headers
        limit = _SPENT.search(headers.get("ratelimit", ""))
        return max(_retry_after(headers.get("retry-after", "")), float(limit[1]) if limit else 0.0)
    return 0.0 if status in (403, 404, 410) and not _is_of_hub(error) else None


def _is_of_hub(error: HfHubHTTPError) -> bool:
    """Whether the error comes from the hub itself: storage URLs expire, and a new lookup gives another."""
    return urlsplit(str(error.response.request.url))[:2] == urlsplit(constants.ENDPOINT)[:2]


def _retry_after(text: str) -> float:
    """Delay in seconds of a Retry-After header, given as a number or a date."""
    if text.isascii() and text.isdecimal() and len(text) < 8:
        return float(text)
    try:
        return max(0.0, (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return 0.0
