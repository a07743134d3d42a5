"""Converts text to token ids and back, with the model's own tokenizer and chat template.

Runs in a process of its own (`python -m core.models.text`), because a tokenizer is a program from a model file.
"""

from __future__ import annotations

import codecs
import copy
import inspect
import json
import re
from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Final, get_args

import mlx_lm.utils as mlx_utils
import msgspec
from mlx_lm.chat_templates import muse_spark
from mlx_lm.tokenizer_utils import BPEStreamingDetokenizer, SPMStreamingDetokenizer
from transformers.utils.chat_template_utils import encode_marked_chat

from core.answer_parts import CallRules, Tool, ToolCall
from core.constraint import MAX_SOURCE, Constraint, Grammar
from core.errors import BadModel, UnsupportedModel, UsageError
from core.models.files.checked_files import name_of
from core.models.files.model_folder import read_settings
from core.models.files.ready_child import run_one
from core.models.files.sandbox import Run
from core.models.files.suitability import check_suitable
from core.models.text import harmony
from core.models.text.answer_reader import AnswerReader, edges_of
from core.models.text.call_forms import JSON_TAGS, form_of, template_of
from core.models.text.call_grammar import FREE, call_grammar, shape_of
from core.models.text.chat_template import render
from core.models.text.control_tokens import pattern_of, with_marks
from core.models.text.grammar_check import check
from core.models.text.template_form import PROBE_NAME, TemplateForm, Turn, in_form, probed
from core.models.text.template_values import one_call_each, said_before, spec_of, with_tools, without_calls
from core.models.text.vocabulary import byte_fallback, byte_level, read_vocabulary
from core.requests.answers import Message, ModelOption, TemplateOptions
from core.sampling_options import Sampling

_PLAIN: Final = "ministral"  # an architecture whose tokenizer is exactly what tokenizer.json says
# bytes of a token's piece of text, by mlx-lm's class for the tokenizer's decoder
_BYTES: Final = ((BPEStreamingDetokenizer, byte_level), (SPMStreamingDetokenizer, byte_fallback))
# marks of reasoning that mlx-lm doesn't know: MiniMax M3, Seed-OSS, Mistral, Cohere, Apertus
_THOUGHTS: Final = (
    *(("<mm:think>", "</mm:think>"), ("<seed:think>", "</seed:think>"), ("[THINK]", "[/THINK]")),
    *(("<|START_THINKING|>", "<|END_THINKING|>"), ("<|inner_prefix|>", "<|inner_suffix|>")),
)
# a conversation that shows what a chat template knows
_NO_SYSTEM: Final = "rejectattr('role', 'equalto', 'system')"
_PROBE: Final = Tool(
    name=PROBE_NAME, description="A probe.", parameters='{"type": "object", "properties": {"a": {"type": "string"}}}'
)
_ARGUMENT, _RESULT = "probe_argument", "probe_result"
_ASKED: Final = (Message(role="user", content="Hello"),)
_CALL: Final = ToolCall(id="callid000", name=_PROBE.name, arguments=json.dumps({"a": _ARGUMENT}))
_CALLED: Final = (
    *_ASKED,
    Message(role="assistant", content="", tool_calls=(_CALL,)),
    Message(role="tool", content=_RESULT, tool_call_id=_CALL.id),
)


class TextStream:
    """Decodes tokens to text at whole characters. The text is raw model output; `trims` drops a first space."""

    def __init__(self, bytes_of: Callable[[int], bytes], *, trims: bool) -> None:
        self._bytes_of, self._trims = bytes_of, trims
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, token: int) -> str:
        """Text completed by `token`, possibly empty; also for ids beyond the tokenizer's."""
        text = self._decoder.decode(self._bytes_of(token))
        if text and self._trims:
            self._trims, text = False, text.removeprefix(" ")
        return text

    @property
    def held(self) -> str:
        """Held-back text, which comes last if no more tokens come."""
        return copy.copy(self._decoder).decode(b"", final=True)


class LibraryStream:
    """A `TextStream` by mlx-lm, for tokenizers whose tokens aren't pieces of text."""

    def __init__(self, detokenizer: Any, vocab_size: int) -> None:
        self._detokenizer, self._vocab_size = detokenizer, vocab_size

    def add(self, token: int) -> str:
        if token >= self._vocab_size:
            return ""
        self._detokenizer.add_token(token)
        return str(self._detokenizer.last_segment)

    @property
    def held(self) -> str:
        detokenizer = copy.copy(self._detokenizer)
        detokenizer.finalize()
        return str(detokenizer.last_segment)


class Tokens:
    """The tokenizer of one model. `eos`: token ids that end an answer; `vocab_size` counts all ids it can produce;
    `longest`: characters of the longest token, 0 if tokens aren't pieces of text.
    """

    def __init__(self, wrapper: Any, directory: Path, checks: Run) -> None:
        self._wrapper, self._directory, self._checks = wrapper, directory, checks
        vocabulary = wrapper.get_vocab()
        self._form, self._marks = form_of(wrapper), harmony.harmony_marks(wrapper, vocabulary)
        ends = {token for token, mark in self._marks.items() if mark == harmony.CALL_END}
        self.eos: frozenset[int] = frozenset({int(token) for token in wrapper.eos_token_ids} | ends)
        self.vocab_size = max(len(wrapper), *(token + 1 for token in vocabulary.values()))
        self.sampling = recommended(read_settings(directory).json("generation_config.json"))
        self._bytes_by_piece = next((by for kind, by in _BYTES if isinstance(wrapper.detokenizer, kind)), None)
        self.longest = max(map(len, vocabulary)) if self._bytes_by_piece else 0

    @classmethod
    def load(cls, directory: Path, checks: Run = run_one) -> Tokens:
        """Load a tokenizer offline, without its code; `checks` checks grammars. Raises ModelNotFound, BadModel."""
        settings = read_settings(directory)  # checks file sizes, because transformers opens any file
        check_suitable(settings)
        generation = settings.json("generation_config.json")
        eos = generation.get("eos_token_id") or settings.config.get("eos_token_id")
        local: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True}
        config, template = settings.json("tokenizer_config.json"), settings.json("chat_template.json")
        if "chat_template" in template and not ("chat_template" in config or "chat_template.jinja" in settings.files):
            local["chat_template"] = template["chat_template"]  # the library reads that file for images only
        # its own code is never run, so read what is in tokenizer.json
        plain = {"tokenizer_type": _PLAIN} if "auto_map" in config and "tokenizer.json" in settings.files else {}
        try:
            wrapper = mlx_utils.load_tokenizer(directory, local | plain, eos_token_ids=eos)
        except Exception as error:  # the tokenizers library raises bare Exception for a damaged tokenizer.json
            reason = (str(error) or type(error).__name__).splitlines()[0][:200]
            what = f"The tokenizer of {name_of(directory)} cannot be read: {reason}"
            raise BadModel(what, "Choose a version of the model that has a tokenizer.json of its own.") from error
        _mark_thoughts(wrapper)
        templates = wrapper._tokenizer.chat_template
        if isinstance(templates, dict) and templates and "default" not in templates:
            wrapper._tokenizer.chat_template = {**templates, "default": next(iter(templates.values()))}
        return cls(wrapper, directory, checks)

    def encode(
        self, messages: Sequence[Message], raw: bool, tools: Sequence[Tool] = (), options: TemplateOptions | None = None
    ) -> list[int]:
        """Token ids of the prompt.

        `raw`: the last message alone, as mlx_lm encodes a string prompt; without a chat template, too, if it is the
        only one. Otherwise the conversation in the chat template with `tools` and `options`, ready for the answer.
        Raises UsageError for a conversation without a template, and BadModel or UsageError if the template does.
        """
        if not raw and not self._wrapper.has_chat_template and (len(messages) > 1 or tools):
            fix = "Send one message alone, or load a model that was made for chats."
            what = "tools" if tools else "conversation"
            raise UsageError(f"{name_of(self._directory)} has no chat template, so it takes no {what}.", fix)
        if raw or not self._wrapper.has_chat_template:
            return self._encode_raw(messages[-1].content)
        return self._encode_chat(messages, tools, options or {})

    def stream(self, *, is_chat: bool = False) -> harmony.Stream:
        """Stream of an answer. That of a chat is without a first space, and with tags for harmony's channels."""
        trims = is_chat and getattr(self._wrapper.detokenizer, "trim_space", True)
        if not self._bytes_by_piece:
            return LibraryStream(self._wrapper.detokenizer, len(self._wrapper))
        text = TextStream(self._bytes, trims=trims)
        return harmony.HarmonyStream(text, self._marks) if is_chat and self._marks else text

    def name(self, token: int) -> str:
        """The text of a token alone; its id if it is no text."""
        stream = self.stream()
        text = stream.add(token) + stream.held
        return text if text and "\ufffd" not in text else f"token_id:{token}"

    def _bytes(self, token: int) -> bytes:
        piece = self._wrapper.convert_ids_to_tokens(token) if token < self.vocab_size else None
        return self._bytes_by_piece(piece) if piece and self._bytes_by_piece else b""

    def reader(self, prompt_end: Sequence[int], tools: Sequence[Tool]) -> AnswerReader:
        if self._marks:
            return AnswerReader(harmony.EDGES, JSON_TAGS, "normal", tools)
        begins = self._wrapper.response_initial_state or ("reasoning" if self._thinks(prompt_end) else "normal")
        return AnswerReader(edges_of(self._wrapper, self._form, bool(tools)), self._form, begins, tools)

    def constrain(
        self, asked: Constraint | None, calls: CallRules, prompt_end: Sequence[int], *, raw: bool
    ) -> Constraint:
        """Constraint of an answer after `prompt_end`: as `asked`, or tool calls. Reasoning before it is free, unless
        the prompt is `raw`. Raises UsageError for a constraint that can't be enforced, UnsupportedModel if none can.
        """
        wrapper = self._wrapper
        if wrapper.response_transitions or wrapper.structural_markers:
            what = "This model marks the parts of its answers, so no shape can be enforced."
            raise UnsupportedModel(what, "Ask without a shape, or load another model.")
        grammar = self._shape(asked, calls, raw=raw)
        start, end = wrapper.think_start_tokens or (), wrapper.think_end_tokens or ()
        if self._thinks(prompt_end):
            start = ()
        elif len(start) != 1 and start[:1] not in {(token,) for token in self._special}:
            end = ()  # text before the constrained part would look like an answer
        if raw or self._marks or not end:
            start = end = ()
        return Constraint(kind=grammar.kind, source=grammar.source, think_start=start, think_end=end)

    def _shape(self, asked: Constraint | None, calls: CallRules, *, raw: bool) -> Grammar:
        """Checked grammar of the part after reasoning. Raises UsageError."""
        special = self._special
        parts = {"": Grammar(kind=asked.kind, source=asked.source)} if asked and not calls.must_call else {}
        callable_ = [tool for tool in calls.tools if not calls.must_call or tool.name in calls.must_call]

        def mark(text: str) -> str:
            ids = self._wrapper.encode(text, add_special_tokens=False)
            return f"<[{ids[0]}]>" if len(ids) == 1 and ids[0] in special else json.dumps(text)

        form = JSON_TAGS if self._marks else self._form
        alone = {f"tools: {tool.name}": call_grammar(form, [tool], json.dumps, one_call=True) for tool in callable_}
        check(parts | alone, self._checks)
        if self._marks and not raw:
            must_call_in = calls.max_tokens if calls.must_call else 0
            grammar = harmony.harmony_grammar(parts.get(""), callable_, mark, must_call_in=must_call_in)
        elif not callable_:
            return parts[""]
        else:
            otherwise = "" if calls.must_call else shape_of(parts[""]) if parts else FREE
            grammar = call_grammar(form, callable_, mark, one_call=calls.one_call, otherwise=otherwise)
        if len(grammar.source) > MAX_SOURCE:
            raise UsageError("The schemas of these tools are too long together.", "Ask with fewer tools.")
        return grammar

    @cached_property
    def _special(self) -> Set[int]:
        """Ids of control tokens. Raises BadModel, UnsupportedModel if the vocabulary can't be enforced."""
        return read_vocabulary(self._directory, self.vocab_size).special

    def _thinks(self, prompt_end: Sequence[int]) -> bool:
        """Whether the model begins with reasoning after this prompt."""
        wrapper = self._wrapper
        return bool(wrapper.has_thinking and wrapper.decode(list(prompt_end)).rstrip().endswith(wrapper.think_start))

    def _encode_raw(self, text: str) -> list[int]:
        bos = self._wrapper.bos_token
        special = bos is None or not text.startswith(bos)
        return list(self._wrapper.encode(text, add_special_tokens=special))

    def _encode_chat(self, messages: Sequence[Message], tools: Sequence[Tool], options: TemplateOptions) -> list[int]:
        gives_ids = self._has_own_renderer and self._wrapper._chat_template is None
        if not gives_ids:
            messages, tools = with_marks(messages, tools, self._control_tokens)
        if any(message.tool_calls or message.role == "tool" for message in messages) and not self._knows_calls:
            messages = without_calls(messages, self._form)
        if tools and not self._knows_tools:
            messages, tools = with_tools(messages, tools, self._form), ()
        specs = [spec_of(tool) for tool in tools] or None
        if not self._has_own_renderer:
            return list(encode_marked_chat(self._wrapper._tokenizer, self._render(messages, specs, options)))
        # a renderer from the code of mlx-lm or transformers, not of the model; it needs arguments as text
        if own := options.keys() & _arguments():
            raise UsageError(f"The chat template has no option {min(own)!r}.", "Leave it out.")
        chosen = {**options, "tools": specs} if specs else options
        if specs and messages[0].role != "system" and not gives_ids:
            messages = [Message(role="system", content=""), *messages]  # DeepSeek's puts the tools into this message
        said = said_before(messages, parsed=False)
        try:
            prompt = self._wrapper.apply_chat_template(said, tokenize=gives_ids, add_generation_prompt=True, **chosen)
        except (AssertionError, LookupError, TypeError, ValueError) as error:
            raise UsageError(f"This model's chat template refuses this conversation: {error}") from error
        return list(prompt) if gives_ids else encode_marked_chat(self._wrapper._tokenizer, prompt)

    @cached_property
    def _control_tokens(self) -> re.Pattern[str]:
        return pattern_of(self._wrapper._tokenizer, template_of(self._wrapper))

    @property
    def _has_own_renderer(self) -> bool:
        return self._wrapper._chat_template is not None or self._wrapper._tokenizer.chat_template is None

    def _render(self, messages: Sequence[Message], tools: list[dict[str, Any]] | None, options: TemplateOptions) -> str:
        turns = said_before(messages, parsed=True)
        if self._marks or self._form.is_single:
            turns = one_call_each(turns)
        return self._rendered(in_form(turns, self._template_form), tools, options)

    def _rendered(self, turns: Sequence[Turn], tools: list[dict[str, Any]] | None, options: TemplateOptions) -> str:
        hugging_face = self._wrapper._tokenizer
        if self._marks and options.get("enable_thinking") is False:  # such a model always thinks
            options = {"reasoning_effort": "low", **options}
        variables = {
            "documents": None,
            self._wrapper._thinking_kwarg: self._wrapper.has_thinking,
            **options,
            **hugging_face.special_tokens_map,
            "tools": tools,
            "messages": harmony.harmony_turns(turns) if self._marks else turns,
            "add_generation_prompt": True,
        }
        return render(hugging_face.get_chat_template(tools=tools), variables)

    @cached_property
    def _template_form(self) -> TemplateForm:
        def shows(turns: Sequence[Turn], words: Sequence[str]) -> bool:
            with suppress(BadModel, UsageError):
                prompt = self._rendered(turns, [spec_of(_PROBE)] if PROBE_NAME in words else None, {})
                return all(word in prompt for word in words)
            return False

        form = probed(shows)
        # a template that filters system messages leaves them out on purpose
        leaves_out = _NO_SYSTEM in template_of(self._wrapper)
        return form._replace(system=True, late_system=True) if leaves_out else form

    @cached_property
    def _knows_tools(self) -> bool:
        """Whether the chat template names tools in a prompt."""
        return self._shows(_ASKED, _PROBE.name)

    @cached_property
    def _knows_calls(self) -> bool:
        """Whether the chat template takes a history with calls and results."""
        return self._shows(_CALLED, _ARGUMENT, _RESULT)

    def _shows(self, messages: Sequence[Message], *words: str) -> bool:
        if self._has_own_renderer:
            return True
        try:
            prompt = self._render(messages, [spec_of(_PROBE)], {})
        except (BadModel, UsageError):
            return False
        return all(word in prompt for word in words)


def _mark_thoughts(wrapper: Any) -> None:
    """Tell mlx-lm's wrapper how the model marks its reasoning, where mlx-lm doesn't know it."""
    vocabulary, fields = wrapper.get_vocab(), vars(wrapper)
    for start, end in _THOUGHTS:
        if vocabulary.keys() >= {start, end}:
            fields |= {"_think_start": start, "_think_start_tokens": (vocabulary[start],)}
            fields |= {"_think_end": end, "_think_end_tokens": (vocabulary[end],)}
    if "to=self<|message|>" in template_of(wrapper):
        fields |= {"_response_format": muse_spark.RESPONSE_FORMAT}


def _arguments() -> Set[str]:
    """Renderer arguments that the caller sets; a client could change the output form with them."""
    from transformers import PreTrainedTokenizerBase

    return inspect.signature(PreTrainedTokenizerBase.apply_chat_template).parameters.keys()


def recommended(config: dict[str, Any]) -> Sampling:
    """Sampling that a generation_config.json recommends; OpenAI's default for a missing or invalid value."""
    found = {"temperature": 0.0 if config.get("do_sample") is False else 1.0}
    for name in get_args(ModelOption) if found["temperature"] else ():
        try:
            msgspec.convert({name: config[name]}, Sampling)
        except (KeyError, msgspec.ValidationError):
            continue
        found[name] = config[name]
    if found.get("top_p") == 1:
        found["top_p"] = 0.0  # both cut nothing off
    return msgspec.convert(found, Sampling)
