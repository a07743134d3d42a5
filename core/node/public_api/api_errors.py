"""HTTP statuses and error bodies for OpenAI's and Anthropic's clients."""

from __future__ import annotations

import re
from typing import Any, Final

from core import errors
from core.node.public_api.chat_request import ChatCompletion
from core.node.public_api.completions_request import TextCompletion
from core.node.public_api.responses_request import ResponseBody

LOADING_RETRY_S: Final = 10  # of 503 while a model loads
_FORMS: Final = (ChatCompletion, TextCompletion, ResponseBody)
_FIELDS: Final = frozenset(name for form in _FORMS for name in form.__struct_fields__)


class UnknownModel(errors.UsageError):
    """The API offers no model of that name."""


def status(error: errors.MaclusterError) -> int:
    """The HTTP status, by which clients decide whether to retry."""
    match error:
        case UnknownModel():
            return 404
        case errors.UsageError() | errors.PlanError() | errors.ModelError():  # fails however often it is retried
            return 400
        case errors.Busy():
            return 429
        case errors.NodeError() | errors.NotPaired() | errors.LinkError() | errors.WorkerError():
            return 503
        case _:
            return 500


def openai_error(error: errors.MaclusterError) -> dict[str, Any]:
    kind = "invalid_request_error" if status(error) in (400, 404) else "server_error"
    code = None
    match error:
        case UnknownModel():
            code = "model_not_found"
        case errors.ContextExceeded():
            code = "context_length_exceeded"
        case errors.Busy():
            kind = code = "rate_limit_exceeded"
    return {"type": "error", "error": {"message": _message(error), "type": kind, "param": _field(error), "code": code}}


def anthropic_error(error: errors.MaclusterError) -> dict[str, Any]:
    match error:
        case UnknownModel():
            kind = "not_found_error"
        case errors.UsageError():
            kind = "invalid_request_error"
        case errors.Busy():
            kind = "rate_limit_error"
        case errors.NodeError() | errors.NotPaired():
            kind = "overloaded_error"
        case _:
            kind = "api_error"
    return {"type": "error", "error": {"type": kind, "message": _message(error)}}


def _field(error: errors.MaclusterError) -> str | None:
    """The field that a refusal begins with."""
    word, *_ = re.split(r"\W", error.what, maxsplit=1)
    return word if word in _FIELDS else None


def _message(error: errors.MaclusterError) -> str:
    """Its words; if a prompt is too long, those from which agents read by how much to shorten it."""
    if not isinstance(error, errors.ContextExceeded):
        return str(error)
    numbers = [number.replace(",", "") for number in re.findall(r"\d[\d,]*", error.what)]
    unit = "tokens" if "tokens" in error.what else "bytes"
    return f"prompt is too long: {f' {unit} > '.join(numbers)} maximum. {error.fix}"
