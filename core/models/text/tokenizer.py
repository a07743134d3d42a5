"""Text to token ids and back, with the model's own tokenizer and chat template.

It is used in a process of its own (`python -m core.models.text`), for a tokenizer is a program from a model file.
"""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any

import mlx_lm.utils as mlx_utils

from core.answer_parts import CallRules, Tool
from core.constraint import MAX_SOURCE, Constraint, Grammar
from core.errors import BadModel, ModelNotFound, UnsupportedModel, UsageError
from core.models.files.checked_files import name_of
from core.models.files.model_folder import read_settings
from core.models.files.ready_child import ReadyChild
from core.models.files.sandbox import Run, run_child
from core.models.text.answer_reader import AnswerReader
from core.models.text.call_grammar import FREE, call_grammar, form_of, shape_of
from core.models.text.chat_template import render
from core.models.text.grammar_check import MODULE as GRAMMAR_CHECK
from core.models.text.grammar_check import check
from core.models.text.template_values import said_before, spec_of
from core.models.text.vocabulary import read_vocabulary
from core.requests.answers import Message, TemplateOptions


class TextStream:
    """Tokens in, text out as soon as whole characters are there. The text is raw model output."""

    def __init__(self, detokenizer: Any, vocab_size: int) -> None:
        self._detokenizer = detokenizer
        self._vocab_size = vocab_size

    def add(self, token: int) -> str:
        """The text that `token` completes; may be empty. Models may have more ids than their tokenizer: those say
        nothing.
        """
        if token >= self._vocab_size:
            return ""
        self._detokenizer.add_token(token)
        return str(self._detokenizer.last_segment)

    @property
    def held(self) -> str:
        """What is held back, and comes last if no more tokens come."""
        detokenizer = copy.copy(self._detokenizer)
        detokenizer.finalize()
        return str(detokenizer.last_segment)


class Tokens:
    """The tokenizer of one model. `eos`: token ids that end an answer; `vocab_size` counts all ids it can produce."""

    def __init__(self, wrapper: Any, directory: Path) -> None:
        self._wrapper, self._directory = wrapper, directory
        self.eos: frozenset[int] = frozenset(int(token) for token in wrapper.eos_token_ids)
        self.vocab_size = len(wrapper)
        self._checks: Run = run_child

    @classmethod
    def load(cls, directory: Path) -> Tokens:
        """The tokenizer in `directory`; raises ModelNotFound or BadModel. Uses no network and none of its code."""
        settings = read_settings(directory)  # checks the sizes of all files: transformers opens them as they are
        if not any(name in settings.contents for name in ("tokenizer.json", "tokenizer.model", "vocab.json")):
            raise ModelNotFound(f"There is no tokenizer in {settings.name}.", "Download the model again.")
        generation = settings.json("generation_config.json")
        eos = generation.get("eos_token_id") or settings.config.get("eos_token_id")
        local = {"trust_remote_code": False, "local_files_only": True}
        try:
            wrapper = mlx_utils.load_tokenizer(directory, local, eos_token_ids=eos)
        except Exception as error:  # the tokenizers library raises bare Exception for a damaged tokenizer.json
            reason = (str(error) or type(error).__name__).splitlines()[0][:200]
            raise BadModel(f"The tokenizer of {name_of(directory)} cannot be read: {reason}") from error
        return cls(wrapper, directory)

    @property
    def has_chat_template(self) -> bool:
        """Whether conversations have a form of their own; without one they are sent raw."""
        return bool(self._wrapper.has_chat_template)

    def encode(
        self,
        messages: Sequence[Message],
        raw: bool,
        tools: Sequence[Tool] = (),
        options: TemplateOptions | None = None,
    ) -> list[int]:
        """Token ids of the prompt.

        `raw`, or a model without a chat template: the last message alone, as mlx_lm encodes a prompt that is a string.
        Else the conversation in the model's chat template, with the `tools` and `options` that this has a use for,
        ready for the answer. Raises BadModel or UsageError where the template does.
        """
        if raw or not self.has_chat_template:
            return self._encode_raw(messages[-1].content)
        return self._encode_chat(messages, [spec_of(tool) for tool in tools] or None, options or {})

    def stand_ready(self) -> None:
        """From now on grammars are checked in a process that starts with the first of them and lives as long as this
        object.
        """
        self._checks = ReadyChild(GRAMMAR_CHECK).run

    def stream(self) -> TextStream:
        """A fresh detokenizer for one answer."""
        return TextStream(self._wrapper.detokenizer, self.vocab_size)

    def reader(self, prompt_end: Sequence[int], tools: Sequence[Tool], *, shaped: bool = False) -> AnswerReader:
        """What tells the parts of an answer to a prompt that ends so; `shaped`: it has a constraint."""
        begins = self._wrapper.response_initial_state or ("reasoning" if self._thinks(prompt_end) else "normal")
        return AnswerReader(self._wrapper, begins, tools, shaped=shaped)

    def constrain(
        self, asked: Constraint | None, calls: CallRules, prompt_end: Sequence[int], *, raw: bool
    ) -> Constraint:
        """What the answer must look like to a prompt that ends so: as `asked`, or calls of tools. What the model thinks
        before that is free, but where the prompt is sent `raw`. Raises UsageError for what cannot be enforced,
        UnsupportedModel where nothing can.
        """
        wrapper = self._wrapper
        if wrapper.response_transitions or wrapper.structural_markers:
            what = "This model marks the parts of its answers: no shape can be enforced on them."
            raise UnsupportedModel(what, "Ask without a shape, or load another model.")
        special = read_vocabulary(self._directory, self.vocab_size).special
        grammar = self._shape(asked, calls, special)
        start, end = wrapper.think_start_tokens or (), wrapper.think_end_tokens or ()
        if raw or not wrapper.has_thinking:
            start = end = ()
        elif self._thinks(prompt_end):
            start = ()
        elif len(start) != 1:  # in front of what is enforced nobody can tell it from an answer
            start = end = ()
        return Constraint(kind=grammar.kind, source=grammar.source, think_start=start, think_end=end)

    def _shape(self, asked: Constraint | None, calls: CallRules, special: Set[int]) -> Grammar:
        """Of what is not thought, every part of it checked. Raises UsageError."""
        parts = {"": Grammar(kind=asked.kind, source=asked.source)} if asked and not calls.must_call else {}
        callable_ = [tool for tool in calls.tools if not calls.must_call or tool.name in calls.must_call]
        if not callable_:
            check(parts, self._checks)
            return parts[""]

        def mark(text: str) -> str:
            ids = self._wrapper.encode(text, add_special_tokens=False)
            return f"<[{ids[0]}]>" if len(ids) == 1 and ids[0] in special else json.dumps(text)

        parser = self._wrapper.tool_parser
        form = form_of(parser.__module__.rpartition(".")[2] if parser else "")
        beside = "" if calls.must_call else shape_of(parts[""]) if parts else FREE
        alone = {f"tools: {tool.name}": call_grammar(form, [tool], json.dumps, one_call=True) for tool in callable_}
        check(parts | alone, self._checks)
        grammar = call_grammar(form, callable_, mark, one_call=calls.one_call, beside=beside)
        if len(grammar.source) > MAX_SOURCE:
            raise UsageError("The schemas of these tools are too long together.", "Ask with fewer tools.")
        return grammar

    def _thinks(self, prompt_end: Sequence[int]) -> bool:
        """Whether the model goes on with what the prompt has it think."""
        wrapper = self._wrapper
        return bool(wrapper.has_thinking and wrapper.decode(list(prompt_end)).rstrip().endswith(wrapper.think_start))

    def _encode_raw(self, text: str) -> list[int]:
        bos = self._wrapper.bos_token
        special = bos is None or not text.startswith(bos)
        return list(self._wrapper.encode(text, add_special_tokens=special))

    def _encode_chat(
        self, messages: Sequence[Message], tools: list[dict[str, Any]] | None, options: TemplateOptions
    ) -> list[int]:
        hugging_face = self._wrapper._tokenizer
        if self._wrapper._chat_template is not None or hugging_face.chat_template is None:
            # a renderer that is code of mlx-lm or transformers, not of the model: it wants arguments as text
            if own := options.keys() & _arguments():
                raise UsageError(f"The option {min(own)!r} is not the chat template's.", "Ask without it.")
            chosen = {**options, "tools": tools} if tools else options
            said = said_before(messages, parsed=False)
            try:
                return list(self._wrapper.apply_chat_template(said, add_generation_prompt=True, **chosen))
            except (AssertionError, LookupError, TypeError, ValueError) as error:
                raise UsageError(f"This model's chat template refuses this conversation: {error}") from error
        variables = {
            "documents": None,
            self._wrapper._thinking_kwarg: self._wrapper.has_thinking,
            **options,
            **hugging_face.special_tokens_map,
            "tools": tools,
            "messages": said_before(messages, parsed=True),
            "add_generation_prompt": True,
        }
        text = render(hugging_face.get_chat_template(tools=tools), variables)
        return list(self._wrapper.encode(text, add_special_tokens=False))


def _arguments() -> Set[str]:
    """What a renderer is told by whoever calls it: a client would say by them what becomes of the text."""
    from transformers import PreTrainedTokenizerBase

    return inspect.signature(PreTrainedTokenizerBase.apply_chat_template).parameters.keys()
