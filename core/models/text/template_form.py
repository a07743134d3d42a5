"""Find by probes the conversations that a chat template takes, and rewrite others for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

Turn = dict[str, Any]  # a message as transformers gives it to templates
# whether the template takes the turns, and its prompt contains all the words
Shows = Callable[[Sequence[Turn], Sequence[str]], bool]

PROBE_NAME: Final = "probe_tool"
_ARGUMENTS: Final = {"a": "probe_argument"}
_STRICT_ID, _USUAL_ID = "callid000", "call_probe-00001"


class TemplateForm(NamedTuple):
    """Forms of conversations that a template takes. The defaults take everything."""

    objects: bool = True  # arguments of calls as objects, not as text
    empty: bool = True  # "" as the content of a message with calls, not None
    texts: bool = True  # content as text, not as a list of parts
    system: bool = True  # a system message
    late_system: bool = True  # one that is not first
    repeats: bool = True  # neighbours of one role
    answer_first: bool = True  # a conversation that begins with the assistant
    together: bool = True  # text and calls in one message of the assistant
    after_tool: bool = True  # a user message right after the result of a call
    any_id: bool = True  # ids of calls that are not nine letters or digits


def probed(shows: Shows) -> TemplateForm:
    """The form of the template that `shows` renders."""
    user, again, answer = _said("user", "probe_user"), _said("user", "probe_again"), _said("assistant", "probe_answer")
    system, late = _said("system", "probe_system"), _said("system", "probe_late")

    def takes(form: TemplateForm, *turns: Turn) -> bool:
        words = [turn["content"] for turn in turns if turn["content"]]
        calls = [PROBE_NAME, _ARGUMENTS["a"]] if any("tool_calls" in turn for turn in turns) else []
        return shows([_written(turn, form) for turn in turns], [*words, *calls])

    texts, parts = TemplateForm(), TemplateForm(texts=False)
    form = next((each for each in (texts, parts) if takes(each, user)), None)
    if form is None:  # it takes nothing, so its own error says most
        return texts
    form = form._replace(
        system=takes(form, system, user),
        late_system=all(
            takes(form, *each) for each in ((user, late), (user, answer, late, again), (system, late, user))
        ),
        repeats=takes(form, user, again) and takes(form, user, answer, _said("assistant", "probe_more"), again),
        answer_first=takes(form, answer, user),
    )
    called, (spoken, result) = [user, *_called(_STRICT_ID)], _called(_STRICT_ID, "probe_spoken")
    for calls in (form._replace(objects=objects, empty=empty) for empty in (True, False) for objects in (True, False)):
        if takes(calls, *called):
            return calls._replace(
                together=takes(calls, user, spoken, result) or not takes(calls, user, *_apart(spoken), result),
                after_tool=takes(calls, *called, again),
                any_id=takes(calls, user, *_called(_USUAL_ID)),
            )
    return form


def in_form(turns: Sequence[Turn], form: TemplateForm) -> list[Turn]:
    """The turns, merged, folded and rewritten where the template would refuse them."""
    told: list[Turn] = []
    for turn in turns:
        before = told[-1]["role"] if told else ""
        if turn["role"] == "system" and (not form.system or (told and not form.late_system)):
            if before == "system":
                told[-1] = _joined(told[-1], turn)
                continue
            turn = _said("user", turn["content"])
        if before == "tool" and turn["role"] == "user" and not form.after_tool:
            told[-1] = _joined(told[-1], _said("tool", turn["content"]))
        # the first turn may be a system message that became the user's
        elif before == turn["role"] != "tool" and (not form.repeats or (len(told) == 1 and not form.system)):
            told[-1] = _joined(told[-1], turn)
        else:
            told.append(turn)
    if (
        not form.answer_first
        and (at := next((n for n, t in enumerate(told) if t["role"] != "system"), None)) is not None
    ):
        told[at:at] = [_said("user", "")] if told[at]["role"] == "assistant" else []
    if not form.any_id:
        ids = {call["id"]: f"{n:09d}" for n, call in enumerate(c for t in told for c in t.get("tool_calls", ()))}
        told = [_renamed(turn, ids) for turn in told]
    if not form.together:
        told = [part for turn in told for part in _apart(turn)]
    if not (form.together or form.repeats):
        told = _alternating(told)
    return [_written(turn, form) for turn in told]


def _joined(turn: Turn, more: Turn) -> Turn:
    calls = [*turn.get("tool_calls", ()), *more.get("tool_calls", ())]
    text = "\n\n".join(filter(None, (turn["content"], more["content"])))
    return {**more, **turn, "content": text, **({"tool_calls": calls} if calls else {})}


def _renamed(turn: Turn, ids: dict[str, str]) -> Turn:
    calls = [{**call, "id": ids[call["id"]]} for call in turn.get("tool_calls", ())]
    result = {"tool_call_id": ids.get(turn["tool_call_id"], "0" * 9)} if "tool_call_id" in turn else {}
    return {**turn, **({"tool_calls": calls} if calls else {}), **result}


def _apart(turn: Turn) -> list[Turn]:
    if not (turn.get("tool_calls") and turn["content"]):
        return [turn]
    return [{key: value for key, value in turn.items() if key != "tool_calls"}, {**turn, "content": ""}]


def _alternating(turns: Sequence[Turn]) -> list[Turn]:
    """With an empty user message between two texts of the assistant: calls and results between them don't count."""
    told: list[Turn] = []
    before = ""
    for turn in turns:
        if turn["role"] != "tool" and not turn.get("tool_calls"):
            told += [_said("user", "")] if before == turn["role"] == "assistant" else []
            before = turn["role"]
        told.append(turn)
    return told


def _written(turn: Turn, form: TemplateForm) -> Turn:
    changed: Turn = {}
    if not form.texts:
        changed["content"] = [{"type": "text", "text": turn["content"]}] if turn["content"] else []
    if calls := turn.get("tool_calls"):
        if not form.empty and not turn["content"]:
            changed["content"] = None
        if not form.objects:
            changed["tool_calls"] = [_with_text(call) for call in calls]
    return turn | changed


def _with_text(call: Turn) -> Turn:
    function = call["function"]
    arguments = json.dumps(function["arguments"], ensure_ascii=False)
    return {**call, "function": {**function, "arguments": arguments}}


def _said(role: str, content: str) -> Turn:
    return {"role": role, "content": content}


def _called(call_id: str, text: str = "") -> list[Turn]:
    call = {"id": call_id, "type": "function", "function": {"name": PROBE_NAME, "arguments": _ARGUMENTS}}
    result = {**_said("tool", "probe_result"), "tool_call_id": call_id, "name": PROBE_NAME}
    return [{**_said("assistant", text), "tool_calls": [call]}, result]
