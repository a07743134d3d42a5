"""An option declared in `core/sampling_options.py` can be requested everywhere, and has its effect."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import msgspec
import pytest
from msgspec.inspect import DictType, IntType, StructType, UnionType, type_info
from msgspec.structs import asdict, replace

from core.engine.requests import Admit, Request
from core.engine.sampling import Picked, RowSampler, pick_all
from core.node.answers.token_log import AnswerRecord
from core.numbers import MOST
from core.pipe_messages import LENGTH, pack
from core.requests.answers import AnswerOptions, ChatRequest, Message
from core.requests.conversations import ChatOptions
from core.sampling_options import Sampling
from core.worker.messages import unpack_command
from core.worker.work_frames import decode_orders, encode_orders
from tui.cli.answer_options import request_of
from tui.cli.parser import parser
from tui.state.sampling import options_of, texts_of

API_ONLY = {"repetition_context", "presence_context", "frequency_context"}
NOT_IN_THE_FORM = API_ONLY | {"presence_penalty", "frequency_penalty", "logit_bias", "logprobs"}
SAMPLING = type_info(Sampling)
assert isinstance(SAMPLING, StructType)
KINDS = {field.name: field.type for field in SAMPLING.fields}
VOCABULARY = 40
PROMPT = tuple(range(30))
EVERYTHING = Sampling(
    temperature=1.0, seed=1, repetition_penalty=1.5, presence_penalty=0.5, frequency_penalty=0.5, repetition_context=25
)


def another(name: str) -> Any:
    """A value of the field that is no default: three quarters of the way from its lower limit to the upper one."""
    kind: Any = KINDS[name]
    number: Any = (
        kind.value_type if isinstance(kind, DictType) else kind.types[0] if isinstance(kind, UnionType) else kind
    )
    low = number.gt if number.ge is None else number.ge
    high = low + 4 if number.le in (None, MOST) else number.le
    value = low + 0.75 * (high - low)
    value = int(value) if isinstance(number, IntType) else value
    return {3: value} if isinstance(kind, DictType) else value


def picked(sampling: Sampling) -> list[Picked]:
    sampler = RowSampler(Admit(bytes(16), sampling, PROMPT), VOCABULARY)
    noise = [2 * mx.random.normal((1, VOCABULARY), key=mx.random.key(step)) for step in range(30)]
    return [pick_all([sampler], logits)[0] for logits in noise]


@pytest.mark.parametrize("name", Sampling.__struct_fields__)
def test_every_option_counts_where_tokens_are_chosen(name: str) -> None:
    assert picked(replace(EVERYTHING, **{name: another(name)})) != picked(EVERYTHING)


@pytest.mark.parametrize("name", sorted(set(Sampling.__struct_fields__) - API_ONLY))
def test_every_option_can_be_asked_for_on_the_command_line(name: str) -> None:
    value = another(name)
    typed = f"3={value[3]}" if isinstance(value, dict) else str(value)
    flag = f"--{name.replace('_', '-')}"
    for command in (["run", "toy", "-p", "x"], ["demo", "--prompt", "x"]):
        args = parser().parse_args([*command, flag, typed, "--json"])
        assert request_of(args.prompt, args).sampling == Sampling(**{name: value})


@pytest.mark.parametrize("name", sorted(set(Sampling.__struct_fields__) - NOT_IN_THE_FORM))
def test_every_option_has_a_line_in_the_form(name: str) -> None:
    value = another(name)
    form = texts_of(ChatOptions()) | {name: str(value)}
    assert options_of(form, ChatOptions()) == (ChatOptions(sampling=Sampling(**{name: value})), {})


def test_one_value_goes_from_the_request_to_the_mac_that_chooses() -> None:
    sampling = Sampling(**{name: another(name) for name in Sampling.__struct_fields__})
    asked = ChatRequest(messages=(Message(role="user", content="x"),), max_tokens=7, min_tokens=3, sampling=sampling)
    body = msgspec.json.decode(msgspec.json.encode(asked), type=ChatRequest)
    record = AnswerRecord(**asdict(body), request_id="ab" * 16, model="m", fingerprint="f", prompt=list(PROMPT))
    logged = msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=AnswerRecord)
    request = Request(request_id="ab" * 16, tokens=logged.prompt, **logged.answer_options)
    handed = unpack_command(pack(request)[LENGTH.size :])
    assert isinstance(handed, Request)
    assert all(getattr(handed, name) == getattr(asked, name) for name in AnswerOptions.__struct_fields__)
    (admitted,) = decode_orders(encode_orders([handed.admit])[0])
    assert isinstance(admitted, Admit)
    assert (admitted.sampling, admitted.min_tokens) == (sampling, 3)
