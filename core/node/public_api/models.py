"""The models that can be asked for: the one that is loaded, in a form that OpenAI's and Anthropic's clients take."""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web

from core.errors import NotLoaded
from core.node.public_api.answering import Answering
from core.node.public_api.bodies import json_reply, refused

BORROWED: Final = ("claude-", "gpt-")


class Models:
    """`GET /v1/models`, and one of them. `has_aliases`: whether what is loaded also answers to names that agents ask
    for by themselves; Claude Code lists no other ones.
    """

    def __init__(self, answering: Answering, has_aliases: bool) -> None:
        self._answering, self._has_aliases = answering, has_aliases

    def routes(self) -> list[web.RouteDef]:
        """What is answered here."""
        return [web.get("/v1/models", self._all), web.get("/v1/models/{id:.+}", self._one)]

    def loaded(self) -> str:
        """The name by which the loaded model is asked for. Raises NotLoaded."""
        return self._answering.model().name

    def has(self, name: str) -> bool:
        """Whether the model that is loaded answers to it. Raises NotLoaded."""
        return name in ("", self.loaded()) or (self._has_aliases and name.startswith(BORROWED))

    async def _all(self, request: web.Request) -> web.Response:
        names = self._names()
        if self._has_aliases and "anthropic-version" in request.headers:
            names += tuple(BORROWED[0] + name for name in names)
        found = [_entry(name) for name in names]
        ends = {"first_id": found[0]["id"] if found else None, "last_id": found[-1]["id"] if found else None}
        return json_reply({"object": "list", "data": found, "has_more": False, **ends})

    async def _one(self, request: web.Request) -> web.Response:
        name = request.match_info["id"]
        if self._names() and self.has(name):
            return json_reply(_entry(name))
        return refused(404, f"No model {name!r} is loaded.")

    def _names(self) -> tuple[str, ...]:
        try:
            return (self.loaded(),)
        except NotLoaded:
            return ()


def _entry(name: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "type": "model",
        "created": 0,
        "created_at": "1970-01-01T00:00:00Z",
        "owned_by": "macluster",
        "lifecycle": "active",
        "display_name": name,
    }
