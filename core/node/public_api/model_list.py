"""The models that can be asked for, in a form that OpenAI's and Anthropic's clients take: the one that is loaded, and
those that may be loaded by request.
"""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web

from core.node.public_api.api_answers import ApiAnswers, LedModel
from core.node.public_api.http_bodies import json_reply, refused

BORROWED: Final = ("claude-", "gpt-")


class Models:
    """`GET /v1/models`, and one of them. `has_aliases`: whether what is loaded also answers to names that agents ask
    for by themselves; Claude Code lists no other ones.
    """

    def __init__(self, answering: ApiAnswers, has_aliases: bool) -> None:
        self._answering, self._has_aliases = answering, has_aliases

    def routes(self) -> list[web.RouteDef]:
        """What is answered here."""
        return [web.get("/v1/models", self._all), web.get("/v1/models/{id:.+}", self._one)]

    def find(self, name: str) -> LedModel | None:
        """What answers to it. Raises NotLoaded where it is not the name of another model, and none is loaded."""
        offered = self._answering.offered()
        if found := next((model for model in offered if model.name == name), None):
            return found
        if not name or not offered or (self._has_aliases and name.startswith(BORROWED)):
            return self._answering.model()
        return None

    def unknown(self, name: str) -> str:
        """What is told of a name to which nothing answers."""
        there = [model.name for model in self._answering.offered()]
        if len(there) == 1:
            return f"The model {name!r} is not loaded; {there[0]} is."
        return f"There is no model {name!r} here; there is {', '.join(there)}."

    async def _all(self, request: web.Request) -> web.Response:
        names = self._names()
        if self._has_aliases and "anthropic-version" in request.headers:
            names += tuple(BORROWED[0] + name for name in names)
        found = [_entry(name) for name in names]
        ends = {"first_id": found[0]["id"] if found else None, "last_id": found[-1]["id"] if found else None}
        return json_reply({"object": "list", "data": found, "has_more": False, **ends})

    async def _one(self, request: web.Request) -> web.Response:
        name = request.match_info["id"]
        if self._names() and self.find(name):
            return json_reply(_entry(name))
        return refused(404, f"No model {name!r} is loaded.")

    def _names(self) -> tuple[str, ...]:
        return tuple(model.name for model in self._answering.offered())


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
