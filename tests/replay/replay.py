"""Replays a session: the number of prompt tokens read, over the number of new ones."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from core.demo import __file__ as demo
from core.engine.prefix_cache import common_prefix
from core.engine.requests import Request
from core.models.text.tokenizer import Tokens
from tests.replay.recording import Prompt
from tests.support.simulated_head import Head

DEMO_MODEL: Final = Path(demo).parent / "macluster-demo"
# the order of many families: tools, then the conversation, with calls in the turn that made them
TEMPLATE: Final = (
    "<|user|>system\n{% for tool in tools or [] %}{{ tool | tojson }}\n{% endfor %}"
    "{% for message in messages %}<|user|>{{ message.role }}\n{{ message.content | trim }}"
    "{% for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}<|end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
ENDS: Final = list(range(4096))  # any token may end an answer once it has its length, though the limit is far higher
ANSWER: Final = 8


class RequestResult(NamedTuple):
    """Result of a request: prompt tokens that were cached, and its answer."""

    reused: int
    answer: Sequence[int]


class Replayed(NamedTuple):
    """Prompt tokens that were `read`, and how many of them were `new`.

    A token is new if no earlier prompt, with its answer here, has it after the same text. Recorded answers are new
    unless this run gave them.
    """

    read: int
    new: int

    @property
    def ratio(self) -> float:
        return self.read / self.new


def tokenizer_in(folder: Path) -> Tokens:
    """The demo model's tokenizer, with a template that leaves nothing out."""
    for name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(DEMO_MODEL / name, folder)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text()) | {"chat_template": TEMPLATE, "model_max_length": 1 << 20}
    path.write_text(json.dumps(config))
    return Tokens.load(folder)


def longest(rounds: Sequence[Sequence[Prompt]]) -> int:
    """Tokens of the longest prompt."""
    return max(len(prompt.tokens) for prompts in rounds for prompt in prompts)


def replay(
    rounds: Sequence[Sequence[Prompt]], context: int, ask: Callable[[list[Request]], list[RequestResult]]
) -> Replayed:
    """Replay a session; `ask` answers concurrent requests, with answers as long as the client allows."""
    said: list[list[int]] = []
    read = new = 0
    for number, prompts in enumerate(rounds):
        for prompt in prompts:
            new += len(prompt.tokens) - max((common_prefix(prompt.tokens, each) for each in said), default=0)
            said.append(prompt.tokens)
        told = ask([_request(f"{number:016x}{at:016x}", each, context) for at, each in enumerate(prompts)])
        for prompt, each in zip(prompts, told, strict=True):
            read += len(prompt.tokens) - each.reused
            said.append([*prompt.tokens, *each.answer])
    return Replayed(read, new)


def over_a_simulated_ring(rounds: Sequence[Sequence[Prompt]], context: int, trim_limit: int | None = None) -> Replayed:
    """Replay over the real engine and a simulated ring."""
    head = Head(1, context=context, chunk=512, trim_limit=trim_limit)

    def ask(requests: list[Request]) -> list[RequestResult]:
        for request in requests:
            head.submit(request)
        head.finish()
        return [RequestResult(head.ended[r.request_id].reused, head.answers[r.request_id]) for r in requests]

    return replay(rounds, context, ask)


def _request(name: str, prompt: Prompt, context: int) -> Request:
    most = min(prompt.max_tokens, context - len(prompt.tokens))
    return Request(request_id=name, tokens=prompt.tokens, max_tokens=most, eos=ENDS, min_tokens=ANSWER)
