"""A Hugging Face hub on loopback for downloads: it lists files and serves ranges of bytes.

Large files lie in a store at another origin, as at the hub; `resolve` redirects there.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from huggingface_hub import constants

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CARD = {"cardData": {"license": "mit"}}
PIECE = 64 * 1024

Fault = Callable[[str, int], str]


class Hub:
    """Serves the files below `folder` as the repository `repo`.

    * `slow_s`: seconds before each 64 KiB.
    * `ranges`: the Range headers received, by file. `served`: bytes of contents sent, by file.
    * `gated`: a token is needed. `tokens`: the tokens received, from the hub's own address and from the store's.
    * `fault`: the fault of a request, by file and number of the request: "" none, "429" and "503" with Retry-After,
      "cut" in the middle, "range" other bytes than asked for, "long", "whole" ignores the range, "flip" of a bit,
      "pointer" in place of the content, "403" as an expired address gives, "gated" to a reader without a token.
    * `flipped`: a byte by file that is always sent changed.
    * `claimed`: an ETag by file that is sent with it, in place of the one in the list.
    * `page`: changes the list of files before it is sent.
    """

    def __init__(self, folder: Path, repo: str) -> None:
        self.folder, self.repo = folder, repo
        self.slow_s = 0.0
        self.ranges: dict[str, list[str]] = {}
        self.served: Counter[str] = Counter()
        self.gated = False
        self.url = self.store = ""
        self.commit = COMMIT
        self.tokens: dict[str, set[str]] = {"hub": set(), "store": set()}
        self.fault: Fault = lambda name, number: ""
        self.flipped: dict[str, int] = {}
        self.claimed: dict[str, str] = {}
        self.page: Callable[[web.Response], object] = lambda page: None
        self._asked: Counter[str] = Counter()
        self._etags: dict[Path, str] = {}

    def etag(self, name: str) -> str:
        """Etag of a file: SHA-256 for weights, which the hub keeps as large files, else git's SHA-1 of the blob."""
        file = self.folder / name
        if file not in self._etags:
            content = file.read_bytes()
            if name.endswith(".safetensors"):
                self._etags[file] = hashlib.sha256(content).hexdigest()
            else:
                git = hashlib.sha1(f"blob {len(content)}\0".encode() + content, usedforsecurity=False)
                self._etags[file] = git.hexdigest()
        return self._etags[file]

    def change(self, folder: Path, commit: str) -> None:
        """Move the branch to another commit; the old one is gone."""
        self.folder, self.commit = folder, commit

    async def info(self, request: web.Request) -> web.Response:
        if self.gated:
            return web.Response(status=403, headers={"X-Error-Code": "GatedRepo", "X-Error-Message": "gated"})
        if request.match_info["repo"] != self.repo:
            return web.Response(status=404, headers={"X-Error-Code": "RepoNotFound", "X-Error-Message": "none"})
        siblings = [{"rfilename": f.name} for f in self.folder.iterdir()]
        return web.json_response(
            {"id": self.repo, "modelId": self.repo, "sha": self.commit, "siblings": siblings} | CARD
        )

    async def tree(self, request: web.Request) -> web.Response:
        self.tokens["hub"].add(request.headers.get("Authorization", ""))
        page = web.json_response([self._entry(file) for file in sorted(self.folder.iterdir())])
        self.page(page)
        return page

    def _entry(self, file: Path) -> dict[str, object]:
        size, etag = file.stat().st_size, self.etag(file.name)
        entry: dict[str, object] = {"type": "file", "path": file.name, "size": size, "oid": etag}
        if file.suffix == ".safetensors":
            entry |= {"oid": "0" * 40, "lfs": {"oid": etag, "sha256": etag, "size": size, "pointerSize": 100}}
        return entry

    async def resolve(self, request: web.Request) -> web.StreamResponse:
        name, revision = request.match_info["name"], request.match_info["revision"]
        self.tokens["hub"].add(request.headers.get("Authorization", ""))
        if revision not in (self.commit, "main"):
            return web.Response(status=404, headers={"X-Error-Code": "RevisionNotFound", "X-Error-Message": "gone"})
        if not name.endswith(".safetensors"):
            return await self.content(request)
        file = self.folder / name
        headers = {
            "Location": f"{self.store}/{name}",
            "X-Repo-Commit": self.commit,
            "X-Linked-Etag": f'"{self.etag(name)}"',
            "X-Linked-Size": str(file.stat().st_size),
        }
        return web.Response(status=302, headers=headers)

    async def stored(self, request: web.Request) -> web.StreamResponse:
        self.tokens["store"].add(request.headers.get("Authorization", ""))
        return await self.content(request)

    async def content(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        size = (self.folder / name).stat().st_size
        headers = {"ETag": f'"{self.claimed.get(name) or self.etag(name)}"', "X-Repo-Commit": self.commit}
        begin, end, status = 0, size, 200
        fault = ""
        if request.method == "GET":
            fault = self.fault(name, self._asked[name])
            self._asked[name] += 1
        if fault == "gated":
            return web.Response(status=401, headers={"X-Error-Code": "GatedRepo", "X-Error-Message": "gated"})
        if fault in ("429", "503", "403"):
            return web.Response(status=int(fault), headers={} if fault == "403" else {"Retry-After": "1"})
        if fault == "pointer":
            return web.Response(body=b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
        if (wanted := request.headers.get("Range")) and fault != "whole":
            self.ranges.setdefault(name, []).append(wanted)
            first, last = wanted.removeprefix("bytes=").split("-")
            begin, end, status = int(first), int(last) + 1 if last else size, 206
            shift = 1 if fault == "range" else 0
            headers["Content-Range"] = f"bytes {begin + shift}-{end - 1}/{size}"
        reply = web.StreamResponse(status=status, headers=headers)
        if fault == "long":
            reply.enable_chunked_encoding()
        else:
            reply.content_length = end - begin
        await reply.prepare(request)
        if request.method == "GET":
            await self._send(request, reply, name, begin, end, fault)
        return reply

    async def _send(
        self, request: web.Request, reply: web.StreamResponse, name: str, begin: int, end: int, fault: str
    ) -> None:
        half = begin + (end - begin) // 2
        with (self.folder / name).open("rb") as file:
            file.seek(begin)
            while (at := file.tell()) < end:
                data = file.read(min(PIECE, end - at))
                await asyncio.sleep(self.slow_s)
                if fault == "cut" and file.tell() > half and request.transport:
                    request.transport.close()
                if request.transport is None or request.transport.is_closing():  # the client is gone
                    return
                if fault == "flip" and file.tell() == end:
                    data = data[:-1] + bytes([data[-1] ^ 1])
                if 0 <= (bad := self.flipped.get(name, -1) - at) < len(data):
                    data = data[:bad] + bytes([data[bad] ^ 1]) + data[bad + 1 :]
                await reply.write(data)
                self.served[name] += len(data)
        if fault == "long":
            await reply.write(b"more")


def point_at(monkeypatch: pytest.MonkeyPatch, hub: Hub) -> None:
    """Make this process use that hub; child processes get it by HF_ENDPOINT."""
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)


@asynccontextmanager
async def running_hub(folder: Path, repo: str) -> AsyncIterator[Hub]:
    """A listening hub; HF_ENDPOINT is its `url`."""
    hub = Hub(folder, repo)
    asked, stored = web.Application(), web.Application()
    asked.add_routes(
        [
            web.get("/api/models/{repo:[^/]+/[^/]+}/revision/{revision}", hub.info),
            web.get("/api/models/{repo:[^/]+/[^/]+}", hub.info),
            web.get("/api/models/{repo:[^/]+/[^/]+}/tree/{revision}", hub.tree),
            web.get("/{repo:[^/]+/[^/]+}/resolve/{revision}/{name}", hub.resolve),
        ]
    )
    stored.add_routes([web.get("/{name}", hub.stored)])
    runners = [web.AppRunner(app, access_log=None, shutdown_timeout=0.1) for app in (asked, stored)]
    try:
        for runner in runners:
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
        hub.url, hub.store = (f"http://127.0.0.1:{runner.addresses[0][1]}" for runner in runners)
        yield hub
    finally:
        for runner in runners:
            await runner.cleanup()
