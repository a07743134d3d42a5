"""Renders a model's chat template.

A template is a program from a model file. Jinja's sandbox protects Python's internals, but allows endless loops and
huge strings (security.md §1.1), and such a loop ignores an alarm of its own process. It is therefore rendered in a
process that only makes prompts (`core.models.text.tokenizing`). The system ends that process when it computes too long,
and the node ends it when it takes too much memory.
"""

from __future__ import annotations

import json
import signal
from datetime import datetime
from functools import cache, lru_cache
from typing import Any, Final

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

from core.errors import BadModel, ContextExceeded, UsageError
from core.settings import MIB
from core.text import clean_text

MAX_TEMPLATE_BYTES: Final = 64 * 1024
MAX_TEXT_BYTES: Final = MIB
CPU_SECONDS: Final = 2

_FIX: Final = "Send the prompt raw, or choose a version of the model with another chat template."


def render(template: str, variables: dict[str, Any]) -> str:
    """Render `template` with JSON-like `variables`, like transformers' apply_chat_template.

    Raises UsageError with the template's own words if it refuses the conversation, BadModel if it is too large or
    broken. A template that exceeds `CPU_SECONDS` of processor time ends this process.
    """
    if len(template.encode()) > MAX_TEMPLATE_BYTES:
        raise BadModel(f"The chat template is larger than {MAX_TEMPLATE_BYTES // 1024} KiB.", _FIX)
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    try:
        text = _compiled(template).render(variables)
    except _Refused as refusal:
        what = f"The model's chat template refuses this conversation: {clean_text(str(refusal)[:300])}"
        raise UsageError(what) from refusal
    except Exception as error:  # a template can raise anything
        what = clean_text(f"{type(error).__name__}: {error}"[:300])
        raise BadModel(f"The chat template fails: {what}", _FIX) from error
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    encoded = text.encode("utf-8", "replace")
    if len(encoded) > MAX_TEXT_BYTES:
        what = f"The prompt is too long: {len(encoded):,} bytes of text, {MAX_TEXT_BYTES:,} are allowed."
        raise ContextExceeded(what, "Shorten it, or start a new chat.")
    return encoded.decode()


class _Refused(jinja2.TemplateError):
    """Raised by the template's raise_exception."""


class _Generation(jinja2.ext.Extension):
    """`{% generation %}`, which marks the assistant's words for training; renders its body."""

    tags = {"generation"}  # noqa: RUF012 - jinja's own way to name tags

    def parse(self, parser: Any) -> Any:
        line = next(parser.stream).lineno
        return jinja2.nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class _Namespace(jinja2.utils.Namespace):
    """A namespace without names that begin with an underscore, which could reach Python's internals."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        values = dict(*args[1:], **kwargs)
        for name in values:
            _check_name(name)
        jinja2.utils.Namespace.__init__(args[0], values)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace cannot hold {name!r}")


def _raise_exception(message: str) -> None:
    raise _Refused(message)


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    # Jinja's own filter escapes HTML, which would change the prompt
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


@cache
def _environment() -> jinja2.Environment:
    """The Jinja environment of transformers 5 for chat templates."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals.update(raise_exception=_raise_exception, namespace=_Namespace)
    environment.globals["strftime_now"] = lambda pattern: datetime.now().strftime(pattern)
    return environment


@lru_cache(maxsize=4)
def _compiled(template: str) -> jinja2.Template:
    return _environment().from_string(template)
