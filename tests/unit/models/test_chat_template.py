"""Templates render as in transformers; harmful ones are in tests/attacks/test_tokenizers.py."""

from __future__ import annotations

from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from core.errors import BadModel, ContextExceeded, UsageError
from core.models.text.chat_template import MAX_TEMPLATE_BYTES, render

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


BROKEN = {
    "range": "{% for i in range(1000000000) %}{% endfor %}",
    "recursion": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "internals": "{{ ''.__class__.__mro__ }}",
    "underscores": "{{ namespace(__class__=1) }}",
    "syntax": "{% for %}",
    "type": "{{ 1 + 'a' }}",
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.promise("T11")
def test_what_ends_by_itself_ends_in_a_sentence(name: str) -> None:
    with pytest.raises(BadModel, match="chat template") as caught:
        render(BROKEN[name], variables())
    assert caught.value.fix


def test_nothing_is_left_for_the_next_conversation() -> None:
    for _ in range(2):
        assert render("[{{ mark }}]{% set mark = messages %}", variables()) == "[]"


def test_a_large_answer_within_the_limit_arrives_whole() -> None:
    assert render("{{ 'a' * 1000000 }}", variables()) == "a" * 1_000_000
    long = [{"role": "user", "content": "é" * 400_000}]
    assert render("{{ messages[0].content }}", variables(messages=long)) == long[0]["content"]
    with pytest.raises(ContextExceeded, match="2,000,000 bytes"):
        render("{{ 'a' * 2000000 }}", variables())


def test_a_large_template_is_refused_unread() -> None:
    with pytest.raises(BadModel, match="64 KiB"):
        render("a" * (MAX_TEMPLATE_BYTES + 1), variables())
