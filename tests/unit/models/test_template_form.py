"""Conversations are given to templates in the form they take, and only where a template refuses another one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pytest

from core.errors import BadModel, UsageError
from core.models.text.chat_template import render
from core.models.text.template_form import TemplateForm, Turn, in_form, probed

CALLS: Final = (
    "{% for c in m.tool_calls or [] %}"
    "<{{ c.id }} {{ c.function.name }} {{ c.function.arguments | tojson }}>{% endfor %}"
)
FREE: Final = "{% for m in messages %}[{{ m.role }}] {{ m.content }}" + CALLS + "{% endfor %}"
# as Gemma 2 wants it
ALTERNATING: Final = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}"
    "[{{ m.role }}] {{ m.content }}{% endfor %}"
)
# as Mistral wants it: roles alternate between calls, and ids have nine letters
STRICT: Final = (
    "{% set n = namespace(i=0) %}{% for m in messages %}"
    "{% if m.role == 'user' or (m.role == 'assistant' and not m.tool_calls) %}"
    "{% if (m.role == 'user') != (n.i % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}"
    "{% set n.i = n.i + 1 %}{% endif %}"
    "{% for c in m.tool_calls or [] %}{% if c.id | length != 9 %}{{ raise_exception('ids') }}{% endif %}{% endfor %}"
    "[{{ m.role }} {{ m.tool_call_id }}] {{ m.content }}" + CALLS + "{% endfor %}"
)
# as DeepSeek V3 wants it: calls are shown if there is no content, and their arguments are text
CONCATENATING: Final = (
    "{% for m in messages %}{% if m.content is none %}"
    "{% for c in m.tool_calls %}{{ '<' + c.function.name + c.function.arguments + '>' }}{% endfor %}"
    "{% else %}[{{ m.role }}] {{ m.content }}{% endif %}{% endfor %}"
)
PARTS: Final = "{% for m in messages %}[{{ m.role }}] {% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}"
LAST_SYSTEM: Final = (
    "{% for m in messages if m.role == 'system' %}{% if loop.last %}{{ m.content }}{% endif %}{% endfor %}"
    "{% for m in messages if m.role != 'system' %}[{{ m.role }}] {{ m.content }}" + CALLS + "{% endfor %}"
)


def form_of(template: str) -> TemplateForm:
    def shows(turns: Sequence[Turn], words: Sequence[str]) -> bool:
        try:
            prompt = render(template, {"messages": turns})
        except (UsageError, BadModel):
            return False
        return all(word in prompt for word in words)

    return probed(shows)


def said(role: str, content: str, **more: Any) -> Turn:
    return {"role": role, "content": content, **more}


CALL: Final = {"id": "toolu_01", "type": "function", "function": {"name": "look", "arguments": {"word": "hop"}}}
RESULT: Final = said("tool", "A step.", tool_call_id="toolu_01")
AGENT: Final = [
    said("system", "Be brief."),
    said("system", "Be kind."),
    said("user", "Hello."),
    said("user", "What is a hop?"),
    said("assistant", "I look.", tool_calls=[CALL]),
    RESULT,
    said("user", "And?"),
    said("system", "Be quick."),
]


def test_a_template_that_takes_all_gets_all_as_it_is() -> None:
    assert form_of(FREE) == TemplateForm()
    assert in_form(AGENT, TemplateForm()) == AGENT


@pytest.mark.parametrize(
    ("template", "refuses"),
    [
        (ALTERNATING, {"system", "late_system", "repeats", "answer_first"}),
        (STRICT, {"repeats", "answer_first", "after_tool", "any_id"}),
        (CONCATENATING, {"objects", "empty", "together"}),
        (PARTS, {"texts"}),
        (LAST_SYSTEM, {"late_system"}),
        ("{{ raise_exception('no') }}", set()),
    ],
)
def test_probes_find_what_a_template_refuses(template: str, refuses: set[str]) -> None:
    assert {name for name, takes in form_of(template)._asdict().items() if not takes} == refuses


@pytest.mark.parametrize("template", [FREE, STRICT, CONCATENATING, LAST_SYSTEM], ids=["free", "strict", "none", "last"])
def test_no_word_of_an_agents_history_is_lost(template: str) -> None:
    prompt = render(template, {"messages": in_form(AGENT, form_of(template))})
    for word in ("Be brief.", "Be kind.", "Hello.", "What is a hop?", "I look.", "look", "hop", "A step.", "And?"):
        assert word in prompt
    assert "Be quick." in prompt


def test_what_is_merged_folded_and_rewritten() -> None:
    plain = [said("system", "S"), said("system", "T"), said("user", "a"), said("assistant", "b"), said("system", "U")]
    assert in_form(plain, form_of(ALTERNATING)) == [
        said("user", "S\n\nT\n\na"),
        said("assistant", "b"),
        said("user", "U"),
    ]
    assert in_form([said("assistant", "b")], form_of(ALTERNATING)) == [said("user", ""), said("assistant", "b")]
    assert in_form(plain, form_of(LAST_SYSTEM))[0] == said("system", "S\n\nT")
    called = in_form(AGENT, form_of(STRICT))
    assert [(turn["role"], turn["content"]) for turn in called] == [
        ("system", "Be brief.\n\nBe kind."),
        ("user", "Hello.\n\nWhat is a hop?"),
        ("assistant", "I look."),
        ("tool", "A step.\n\nAnd?"),
        ("system", "Be quick."),
    ]
    assert (called[2]["tool_calls"][0]["id"], called[3]["tool_call_id"]) == ("000000000", "000000000")
    written = in_form(AGENT[4:5], form_of(CONCATENATING))
    assert [turn["content"] for turn in written] == ["I look.", None]
    assert written[1]["tool_calls"][0]["function"]["arguments"] == '{"word": "hop"}'
    assert in_form([said("user", "a")], form_of(PARTS)) == [said("user", [{"type": "text", "text": "a"}])]  # type: ignore[arg-type]
