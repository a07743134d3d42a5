"""Renders a model's chat template where it can do no harm: in a child that is watched and killed.

A template is a program from a model file. Jinja's sandbox keeps it from Python's internals but not from loops without
end or strings without limit (security.md §1.1), and such a loop does not notice an alarm of its own process. The child
is this module, run as `python -m core.models.text.chat_template`: JSON on stdin, the text on stdout, no transformers.
"""

from __future__ import annotations

import json
from datetime import datetime
from functools import cache, lru_cache
from typing import Any, Final

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

from core.errors import BadModel, UsageError
from core.models.files.ready_child import run_jobs
from core.models.files.sandbox import Job, Run, run_child
from core.settings import MIB
from core.text import clean_text

MODULE: Final = "core.models.text.chat_template"
MAX_TEMPLATE_BYTES: Final = 64 * 1024
MAX_TEXT_BYTES: Final = MIB
MAX_RSS_BYTES: Final = 512 * MIB
CPU_SECONDS: Final = 2
MAX_SECONDS: Final = 20.0  # of wall time: a Mac that computes has little time for a template

_USUAL: Final = "{% for m in messages %}{% if loop.first %}{{ m['role'] + (m.content | trim) }}{% endif %}{% endfor %}"
_REFUSED: Final = 3
_BROKEN: Final = 4
_FIX: Final = "Send the prompt raw, or fetch the model from a source you trust."


def render(
    template: str,
    variables: dict[str, Any],
    run: Run = run_child,
    *,
    seconds: float = MAX_SECONDS,
    rss: int = MAX_RSS_BYTES,
) -> str:
    """The text of `template` with JSON-like `variables`, as transformers' apply_chat_template renders it.

    Takes at most `seconds` of wall time, `CPU_SECONDS` of processor time and `rss` bytes of memory, in a child process
    that `run` has. Raises UsageError with the template's own words if it refuses the conversation, BadModel if it is
    too large, broken, or hits a limit.
    """
    if len(template.encode()) > MAX_TEMPLATE_BYTES:
        raise BadModel(f"The chat template is larger than {MAX_TEMPLATE_BYTES // 1024} KiB.", _FIX)
    request = json.dumps({"template": template, "variables": variables}).encode()
    job = Job(
        module=MODULE,
        subject="The chat template",
        fix=_FIX,
        seconds=seconds,
        rss_bytes=rss,
        answer_bytes=MAX_TEXT_BYTES,
    )
    status, answer = run(job, request)
    text = answer.decode("utf-8", "replace")
    if status == _REFUSED:
        raise UsageError(f"The model's chat template refuses this conversation: {clean_text(text[:300])}")
    if status != 0:
        raise BadModel(f"The chat template fails: {clean_text(text[:300]) or f'exit status {status}'}", _FIX)
    return text


class _Refused(jinja2.TemplateError):
    """The template called raise_exception."""


class _Generation(jinja2.ext.Extension):
    """`{% generation %}` marks the assistant's words for training; here its body is simply rendered."""

    tags = {"generation"}  # noqa: RUF012 - jinja's own way to name tags

    def parse(self, parser: Any) -> Any:
        """The body as it stands."""
        line = next(parser.stream).lineno
        return jinja2.nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class _Namespace(jinja2.utils.Namespace):
    """A namespace without names that begin with an underscore: they could reach Python's internals."""

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
    # jinja's own filter escapes HTML, which would change the prompt
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


@cache
def _environment() -> jinja2.Environment:
    """The environment that transformers 5 gives chat templates."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals.update(raise_exception=_raise_exception, strftime_now=_strftime_now, namespace=_Namespace)
    return environment


@lru_cache(maxsize=4)
def _compiled(template: str) -> jinja2.Template:
    return _environment().from_string(template)


def _rendered(request: bytes) -> tuple[int, bytes]:
    """The child's work: the exit status, and the text or the complaint."""
    try:
        wanted = json.loads(request)
        text, status = _compiled(wanted["template"]).render(wanted["variables"]), 0
    except _Refused as refusal:
        text, status = str(refusal), _REFUSED
    except (
        jinja2.TemplateError,
        ArithmeticError,
        LookupError,
        MemoryError,
        RecursionError,
        TypeError,
        ValueError,
    ) as e:
        text, status = f"{type(e).__name__}: {e}", _BROKEN
    return status, text.encode("utf-8", "replace")


def _get_ready() -> None:
    """Jinja has parts that it imports with the first template."""
    _environment().from_string(_USUAL).render(messages=[{"role": "user", "content": ""}])


if __name__ == "__main__":
    run_jobs(_rendered, CPU_SECONDS, _get_ready)
