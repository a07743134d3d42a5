"""A Hugging Face hub on loopback, as far as a download needs one: which files there are, and their bytes by ranges."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

COMMIT = "0123456789abcdef0123456789abcdef01234567"
PIECE = 64 * 1024


class Hub:
    """Serves the files below `folder` as the repository `repo`. `slow_s`: seconds that pass before each 64 KiB.
    `ranges`: the Range headers that came, by file. `gated`: it wants a token.
    """

    def __init__(self, folder: Path, repo: str) -> None:
        self.folder, self.repo = folder, repo
        self.slow_s = 0.0
        self.ranges: dict[str, list[str]] = {}
        self.gated = False
        self.url = ""

    def etag(self, name: str) -> str:
        """SHA-256 for weights, which the hub keeps as large files, else git's SHA-1 of the blob."""
        content = (self.folder / name).read_bytes()
        if name.endswith(".safetensors"):
            return hashlib.sha256(content).hexdigest()
        return hashlib.sha1(f"blob {len(content)}\0".encode() + content, usedforsecurity=False).hexdigest()

    async def info(self, request: web.Request) -> web.Response:
        if self.gated:
            return web.Response(status=403, headers={"X-Error-Code": "GatedRepo", "X-Error-Message": "gated"})
        if request.match_info["repo"] != self.repo:
            return web.Response(status=404, headers={"X-Error-Code": "RepoNotFound", "X-Error-Message": "none"})
        siblings = [{"rfilename": f.name} for f in self.folder.iterdir()]
        return web.json_response({"id": self.repo, "modelId": self.repo, "sha": COMMIT, "siblings": siblings})

    async def tree(self, request: web.Request) -> web.Response:
        return web.json_response([self._entry(file) for file in sorted(self.folder.iterdir())])

    def _entry(self, file: Path) -> dict[str, object]:
        size, etag = file.stat().st_size, self.etag(file.name)
        entry: dict[str, object] = {"type": "file", "path": file.name, "size": size, "oid": etag}
        if file.suffix == ".safetensors":
            entry |= {"oid": "0" * 40, "lfs": {"oid": etag, "sha256": etag, "size": size, "pointerSize": 100}}
        return entry

    async def content(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        file = self.folder / name
        data, headers = file.read_bytes(), {"ETag": f'"{self.etag(name)}"', "X-Repo-Commit": COMMIT}
        begin = 0
        if wanted := request.headers.get("Range"):
            self.ranges.setdefault(name, []).append(wanted)
            begin = int(wanted.removeprefix("bytes=").split("-")[0])
            headers["Content-Range"] = f"bytes {begin}-{len(data) - 1}/{len(data)}"
        reply = web.StreamResponse(status=206 if wanted else 200, headers=headers)
        reply.content_length = len(data) - begin
        await reply.prepare(request)
        for at in range(begin, len(data) if request.method == "GET" else begin, PIECE):
            await asyncio.sleep(self.slow_s)
            if request.transport is None:  # whoever asked is gone
                break
            await reply.write(data[at : at + PIECE])
        return reply


@asynccontextmanager
async def running_hub(folder: Path, repo: str) -> AsyncIterator[Hub]:
    """A hub that listens; HF_ENDPOINT is its `url`."""
    hub = Hub(folder, repo)
    app = web.Application()
    app.add_routes(
        [
            web.get("/api/models/{repo:[^/]+/[^/]+}/revision/{revision}", hub.info),
            web.get("/api/models/{repo:[^/]+/[^/]+}", hub.info),
            web.get("/api/models/{repo:[^/]+/[^/]+}/tree/{revision}", hub.tree),
            web.get("/{repo:[^/]+/[^/]+}/resolve/{revision}/{name}", hub.content),
        ]
    )
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    hub.url = f"http://127.0.0.1:{port}"
    try:
        yield hub
    finally:
        await runner.cleanup()
