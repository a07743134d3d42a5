"""`/v1/models`: the loaded model, and the models that a request may load."""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web

from core.node.base.local_server import json_reply
from core.node.public_api.api_answers import ApiAnswers, LedModel
from core.node.public_api.api_errors import UnknownModel

BORROWED: Final = ("claude-", "gpt-")


class Models:
    """Finds models by name; `GET /v1/models` lists them."""

    def __init__(self, answers: ApiAnswers, has_aliases: bool) -> None:
        # with aliases the loaded model also answers to the names that agents send by default
        self._answers, self._has_aliases = answers, has_aliases

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/v1/models", self._all), web.get("/v1/models/{id:.+}", self._one)]

    def find(self, name: str) -> LedModel:
        """The model of that name. Raises UnknownModel, or NotLoaded if no model is loaded."""
        offered = self._answers.offered()
        if found := next((model for model in offered if model.name == name), None):
            return found
        if not name or not offered or (self._has_aliases and name.startswith(BORROWED)):
            return self._answers.model()
        names = [model.name for model in offered]
        if len(names) == 1:
            raise UnknownModel(f"The model {name!r} is not loaded; {names[0]} is.")
        raise UnknownModel(f"There is no model {name!r} here.", f"Use one of {', '.join(names)}.")

    async def _all(self, request: web.Request) -> web.Response:
        found = [_entry(model.name, model.context) for model in self._answers.offered()]
        if self._has_aliases and "anthropic-version" in request.headers:
            found += [entry | {"id": BORROWED[0] + entry["id"]} for entry in found]
        ends = {"first_id": found[0]["id"] if found else None, "last_id": found[-1]["id"] if found else None}
        return json_reply({"object": "list", "data": found, "has_more": False, **ends})

    async def _one(self, request: web.Request) -> web.Response:
        name = request.match_info["id"]
        if not self._answers.offered():
            raise UnknownModel(f"No model {name!r} is loaded.")
        return json_reply(_entry(name, self.find(name).context))


_YES: Final[dict[str, Any]] = {"supported": True}
_NO: Final[dict[str, Any]] = {"supported": False}
# as in Anthropic's Models API
_CAPABILITIES: Final = {
    **dict.fromkeys(("batch", "citations", "code_execution", "context_management", "image_input", "pdf_input"), _NO),
    "effort": _YES | dict.fromkeys(("low", "medium", "high"), _YES) | {"max": _NO},
    "server_tools": _NO | {"code_execution": _NO, "web_search": _NO},
    "structured_outputs": _YES,
    "thinking": _YES | {"types": dict.fromkeys(("adaptive", "between_tools", "disabled", "enabled"), _YES)},
}
# names of the context length in Anthropic's and vLLM's APIs, OpenRouter's, and Codex's list
_LIMITS: Final = ("max_input_tokens", "max_tokens", "max_model_len", "context_length", "context_window")


def _entry(name: str, context: int) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "type": "model",
        "created": 0,
        "created_at": "1970-01-01T00:00:00Z",
        "owned_by": "macluster",
        "lifecycle": "active",
        "display_name": name,
        "capabilities": _CAPABILITIES,
        **(dict.fromkeys(_LIMITS, context) if context else {}),
    }
