"""Templates render as transformers renders them, and bombs end in a sentence."""

from __future__ import annotations

import gc
import time
from typing import Any

import psutil
import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from core.errors import BadModel, UsageError
from core.models.files.ready_child import READY, ReadyChild
from core.models.text.chat_template import MAX_TEMPLATE_BYTES, MODULE, render
from core.settings import MIB

MESSAGES = [{"role": "user", "content": "  <b> ü\n"}, {"role": "assistant", "content": "yes"}]

TEMPLATES = {
    "trimmed blocks": "{% for m in messages %}\n  {% if loop.first %}\n{{ m.role }}\n  {% endif %}\n{% endfor %}\nend",
    "tojson": "{{ messages | tojson }} {{ messages | tojson(indent=2) }} {{ {'b': 1} | tojson(sort_keys=true) }}",
    "loop controls": "{% for m in messages %}{% if loop.last %}{% break %}{% endif %}{{ m['content'] }}{% endfor %}",
    "namespace": "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
    "generation": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}!{% endfor %}",
    "undefined": "[{{ nothing }}]{% if tools is none %}none{% endif %}{{ bos_token }}{{ dict(a=1).a }}",
    "today": "{{ strftime_now('%Y') }}",
    "filters": "{{ messages[0].content | trim | upper }}{{ messages | map(attribute='role') | join(',') }}",
}


def variables(**more: Any) -> dict[str, Any]:
    return {"tools": None, "documents": None, "messages": MESSAGES, "add_generation_prompt": True, **more}


@pytest.mark.parametrize("name", TEMPLATES)
def test_it_renders_as_transformers_does(name: str) -> None:
    [expected], _ = render_jinja_template([MESSAGES], None, None, TEMPLATES[name], False, False, True, bos_token="<s>")
    assert render(TEMPLATES[name], variables(bos_token="<s>")) == expected


def test_a_refusal_is_the_templates_own_sentence() -> None:
    with pytest.raises(UsageError, match="roles must alternate"):
        render("{{ raise_exception('roles must alternate\x1b[2J') }}", variables())


BOMBS = {
    "loops without end": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "range": "{% for i in range(1000000000) %}{% endfor %}",
    "string times": "{{ 'a' * 4000000000 }}",
    "justified": "{{ 'a'.ljust(4000000000) }}",
    "format": "{{ '%2000000000d' | format(1) }}",
    "doubling": "{% set ns = namespace(s='aaaaaaa') %}{% for i in range(40) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
    "output": "{% for i in range(99999) %}{{ 'a' * 99999 }}{% endfor %}",
    "recursion": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "internals": "{{ ''.__class__.__mro__ }}",
    "underscores": "{{ namespace(__class__=1) }}",
    "syntax": "{% for %}",
    "type": "{{ 1 + 'a' }}",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_ends_in_a_sentence(name: str) -> None:
    begun = time.monotonic()
    with pytest.raises(BadModel, match="chat template") as caught:
        render(BOMBS[name], variables(), seconds=1.0, rss=192 * MIB)
    assert caught.value.fix
    assert time.monotonic() - begun < 3


@pytest.mark.slow
def test_a_child_that_stands_ready_bears_every_bomb_and_goes_on() -> None:
    ready = ReadyChild(MODULE)
    for name in ("loops without end", "doubling", "output", "internals", "syntax"):
        with pytest.raises(BadModel, match="chat template"):
            render(BOMBS[name], variables(), ready.run, seconds=1.0, rss=192 * MIB)
        assert render("{{ messages[0].role }}", variables(), ready.run) == "user"
    with pytest.raises(UsageError, match="roles must alternate"):
        render("{{ raise_exception('roles must alternate') }}", variables(), ready.run)
    children = standing_ready()
    for _ in range(2):
        assert render("[{{ mark }}]{% set mark = messages %}", variables(), ready.run) == "[]"
    assert standing_ready() == children, "what ended well left nothing behind, and ended nobody"
    del ready
    gc.collect()
    assert not any(child.is_running() for child in children)


def standing_ready() -> list[psutil.Process]:
    return [each for each in psutil.Process().children() if READY in each.cmdline()]


def test_a_large_answer_within_the_limit_arrives_whole() -> None:
    assert render("{{ 'a' * 1000000 }}", variables()) == "a" * 1_000_000
    long = [{"role": "user", "content": "é" * 400_000}]
    assert render("{{ messages[0].content }}", variables(messages=long)) == long[0]["content"]
    with pytest.raises(BadModel, match="more than 1 MiB"):
        render("{{ 'a' * 2000000 }}", variables())


def test_a_large_template_is_refused_unread() -> None:
    with pytest.raises(BadModel, match="64 KiB"):
        render("a" * (MAX_TEMPLATE_BYTES + 1), variables())
