"""The results of mlx_lm in one process, and a ring of stages in the same process that must equal them.

Arrays that cross a cut go through plain bytes.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from itertools import count, pairwise
from typing import Any, Final

import mlx.core as mx
import msgspec
import numpy as np
import pytest
from mlx_lm.generate import BatchGenerator, generate_step, speculative_generate_step, stream_generate
from mlx_lm.models.cache import LRUPromptCache, make_prompt_cache
from mlx_lm.perplexity import eval_ppl
from mlx_lm.sample_utils import make_logits_processors, make_sampler

from core.engine.ring_model import RingModel
from core.engine.ring_work import Extend, Keep, Merge, New, Op
from core.events import Topology
from core.link.arrays import PackedArray, encode_arrays, packed_arrays
from core.models.slicing.probe import ModelProbe
from core.models.slicing.slots import Slice
from core.worker.stage import LoadedStage
from core.worker.telemetry import StageMeter

# prompts go through in several chunks; the longest one exceeds a sliding window of 8
CHUNK: Final = 16
TOKENS: Final = 12
NAME: Final = "model"


def wire(arrays: Sequence[mx.array]) -> list[PackedArray]:
    """Pass arrays through plain bytes, as between two machines."""
    return packed_arrays(memoryview(b"".join(encode_arrays(arrays))))


class Reference:
    """Logits of every chunk and step, and the greedy tokens after the last chunk, from the whole model in mlx_lm."""

    def __init__(self, model: Any, chunks: tuple[int, ...], steps: int) -> None:
        caches = make_prompt_cache(model)
        rng = np.random.default_rng(7)
        self.inputs = [rng.integers(4, 200, (1, n)).tolist() for n in chunks]
        self.logits: list[Any] = []
        self.tokens: list[int] = []
        for step in range(len(chunks) + steps):
            logits = model(mx.array(self.inputs[step]), cache=caches)[:, -1]
            mx.eval(logits, [c.state for c in caches])
            self.logits.append(np.array(logits.astype(mx.float32)))
            if step + 1 >= len(chunks):
                self.tokens.append(int(self.logits[-1].argmax()))
                self.inputs.append([[self.tokens[-1]]])
        assert not np.isnan(self.logits).any()


class Ring:
    """Stages of `slices` in one process, each fed by the one before; a `Forward` of core.engine.ring_model.

    `head` is the number of the stage with norm and output head. A ring of one stage is the whole model.
    """

    def __init__(self, slices: Sequence[Slice], head: int, kv_bits: int | None = None) -> None:
        self.stages = [LoadedStage(layers, StageMeter(number), kv_bits) for number, layers in enumerate(slices)]
        self.head = self.stages[head]
        self.trim_limit = slices[head].caches.trim_limit
        self.vocab_size = slices[head].vocab_size
        self._handles = count()

    def compose(self, ops: Sequence[Op]) -> None:
        """Compose on every stage, as if the operations had arrived there."""
        arrived = msgspec.msgpack.decode(msgspec.msgpack.encode(ops), type=tuple[Op, ...])
        for stage in self.stages:
            stage.compose(arrived)
        assert len({stage.handles for stage in self.stages}) == 1

    def forward(self, handle: int, tokens: mx.array) -> mx.array:
        """Token ids [B, L] round the ring; logits [B, L, V], lazy."""
        return self._round(handle, tokens, every=True)

    def own_bytes(self, handle: int) -> int:
        """Bytes of the handle's caches on the first stage."""
        return self.stages[0].nbytes(handle)

    def step(self, handle: int, tokens: list[list[int]]) -> Any:
        """Token ids [B, L] round the ring; logits [B, V] of the last position as float32."""
        return np.array(self._round(handle, mx.array(tokens), every=False).astype(mx.float32))

    def begin(self) -> int:
        """Start one new row."""
        handle = next(self._handles)
        self.compose([New(handle)])
        return handle

    def merge(self, rows: Sequence[int]) -> int:
        """Merge rows that ran alone."""
        handle = next(self._handles)
        self.compose([Merge(handle, tuple(rows))])
        return handle

    def extend(self, handle: int, more: int) -> int:
        """Append the rows of another handle to merged rows."""
        self.compose([Extend(handle, more)])
        return handle

    def keep(self, handle: int, chosen: Sequence[int]) -> int:
        """Keep only these of the merged rows."""
        self.compose([Keep(handle, tuple(chosen))])
        return handle

    def _round(self, handle: int, tokens: mx.array, *, every: bool) -> mx.array:
        if len(self.stages) == 1:
            return self.head.whole(handle, tokens, every=every)
        position = self.stages[0].position(handle)
        boundary = wire(self.stages[0].embed(handle, tokens))
        for stage in self.stages[1:]:
            boundary = wire(stage.run(handle, boundary, position))
        for stage in self.stages:
            stage.prepare()  # stages prepare while they wait
        return self.head.output(handle, boundary, every=every)


def slices_of(whole: Any, twin: Callable[[], Any], cuts: tuple[int, ...], topology: Topology) -> list[Slice]:
    """Slices of instances made by `twin`, in the order of a ring of that topology, the head's first."""
    probe = ModelProbe(whole)
    parts = list(pairwise((0, *cuts, probe.layers)))
    output = {"forward": parts[-1], "reverse": parts[-1]}.get(topology, parts[0])
    ordered = [parts[-1], *parts[:-1]] if topology == "reverse" else parts
    return [Slice(twin(), probe, *part, embed=part[0] == 0, output=part == output) for part in ordered]


def private_ring(whole: Any, twin: Callable[[], Any], cuts: tuple[int, ...], kv_bits: int | None = None) -> Ring:
    """A ring of instances made by `twin`; its head owns the first layers, the embedding and the output."""
    return Ring(slices_of(whole, twin, cuts, "private"), 0, kv_bits)


def check(ring: Ring, reference: Reference, *, within: float | None) -> None:
    """Check that greedy tokens equal the reference's, and logits `within` its own; None compares tokens alone."""
    handle = ring.begin()
    tokens = []
    for inputs, expected in zip(reference.inputs, reference.logits, strict=False):
        logits = ring.step(handle, inputs)
        if within is not None:
            np.testing.assert_allclose(logits, expected, rtol=0, atol=within)
        tokens.append(int(logits.argmax()))
    assert tokens[-len(reference.tokens) :] == reference.tokens


def check_as_mlx_lm(model: RingModel, whole: Any, tokenizer: Any = None, *, within: float = 1e-4) -> None:
    """Check that every mlx-lm function that runs a model gives the same over a ring as over the whole model.

    `within`: the allowed difference of logprobs. Without a tokenizer, token ids are compared and no text.
    """
    check_generation(model, whole, tokenizer, within=within)
    check_speculation(model, whole, tokenizer, within=within)
    check_batches(model, whole, within=within)
    check_prompt_cache(model, whole)
    check_perplexity(model, whole)


def check_generation(model: RingModel, whole: Any, tokenizer: Any = None, *, within: float = 1e-4) -> None:
    """Compare `generate_step`, or `stream_generate` with a tokenizer: greedy, and with sampler and processors."""
    _check_alike(lambda m: _generated(m, tokenizer), model, whole, within)
    options = {
        "sampler": make_sampler(temp=0.9, top_p=0.9),
        "logits_processors": make_logits_processors({7: 1.5}, repetition_penalty=1.2),
    }
    _check_alike(lambda m: _generated(m, tokenizer, **options), model, whole, within)


def check_speculation(model: RingModel, whole: Any, tokenizer: Any = None, *, within: float = 1e-4) -> None:
    """Compare `speculative_generate_step`, or `stream_generate`, with a draft model that is sometimes right."""

    def speculated(model: Any) -> list[Any]:
        draft = Draft(whole)
        cache = make_prompt_cache(model) + make_prompt_cache(draft)
        return _generated(model, tokenizer, draft_model=draft, num_draft_tokens=3, prompt_cache=cache)

    if all(cache.is_trimmable() for cache in make_prompt_cache(whole)):
        _check_alike(speculated, model, whole, within)
    else:
        for each in (model, whole):
            with pytest.raises(ValueError, match="trimmable"):
                speculated(each)


def check_batches(model: RingModel, whole: Any, *, within: float = 1e-4) -> None:
    """Compare `BatchGenerator`: ragged prompts, rows that join and leave, a sampler each, and a row that continues
    alone.
    """
    _check_alike(_batched, model, whole, within)


def check_prompt_cache(model: RingModel, whole: Any) -> None:
    """Compare `LRUPromptCache`: a second turn reuses the first, two don't disturb each other, and trimming works."""
    assert _conversation(model) == _conversation(whole)


def check_perplexity(model: RingModel, whole: Any) -> None:
    """Compare `eval_ppl`, which runs several rows and keeps nothing."""
    data = mx.array(_prompt(5 * 24, 5)).reshape(5, 24)
    with redirect_stdout(io.StringIO()):
        found, expected = (eval_ppl(each, data, batch_size=2) for each in (model, whole))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


class Draft:
    """A draft model with every third answer wrong."""

    def __init__(self, whole: Any) -> None:
        self.layers = whole.layers
        self._whole = whole
        self._calls = 0

    def __call__(self, tokens: mx.array, cache: Any) -> mx.array:
        """Logits of the whole model, or of the token ids before for a wrong answer."""
        self._calls += 1
        logits: mx.array = self._whole(tokens, cache=cache)
        return logits if self._calls % 3 else mx.roll(logits, 1, -1)

    def make_cache(self) -> list[Any]:
        """Make the cache of the whole model."""
        caches: list[Any] = make_prompt_cache(self._whole)
        return caches


def _check_alike(run: Callable[[Any], list[Any]], model: RingModel, whole: Any, within: float) -> None:
    """Check that `run` gives equal lists of tuples, whose last element is an array of logprobs."""
    found, expected = run(model), run(whole)
    assert [step[:-1] for step in found] == [step[:-1] for step in expected]
    assert len({step[0] for step in expected}) >= TOKENS // 2
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.array(mine[-1]), np.array(theirs[-1]), rtol=0, atol=within)


def _prompt(length: int, seed: int) -> list[int]:
    tokens: list[int] = np.random.default_rng(seed).integers(4, 200, length).tolist()
    return tokens


def _generated(model: Any, tokenizer: Any, **options: Any) -> list[Any]:
    """(token, whether drafted, text, logprobs) of the answer to a fixed prompt."""
    mx.random.seed(5)
    options |= {"max_tokens": TOKENS, "prefill_step_size": CHUNK}
    prompt = mx.array(_prompt(40, 1))
    if tokenizer:
        answer = stream_generate(model, tokenizer, prompt, **options)
        return [(step.token, step.from_draft, step.text, step.logprobs) for step in answer]
    if draft := options.pop("draft_model", None):
        steps = speculative_generate_step(prompt, model, draft, **options)
        return [(token, drafted, "", logprobs) for token, logprobs, drafted in steps]
    return [(token, False, "", logprobs) for token, logprobs in generate_step(prompt, model, **options)]


def _batched(model: Any) -> list[Any]:
    """(token, row, finish reason, logprobs) in order of arrival."""
    mx.random.seed(6)
    generator = BatchGenerator(
        model, max_tokens=TOKENS, completion_batch_size=4, prefill_batch_size=2, prefill_step_size=CHUNK
    )
    prompts = [_prompt(length, length) for length in (5, 40, 1, 19, 11)]
    generator.insert(prompts[:3], samplers=[None, make_sampler(temp=0.9), None])
    seen: list[Any] = []
    ended: dict[int, Any] = {}
    for step in count():
        if step == 4:
            generator.insert(prompts[3:], max_tokens=[TOKENS, 5], samplers=[make_sampler(temp=0.7, min_p=0.1), None])
        if step == 9:
            generator.remove([0])
        prompted, answered = generator.next()
        if not prompted and not answered:
            break
        seen += [(each.token, each.uid, each.finish_reason, each.logprobs) for each in answered]
        ended |= {each.uid: each.prompt_cache for each in answered if each.finish_reason}
    generator.close()
    assert sorted(ended) == [1, 2, 3, 4]
    for row, cache in ended.items():
        steps = generate_step(mx.array(_prompt(3, row)), model, max_tokens=4, prompt_cache=cache)
        seen += [(token, row, "alone", logprobs) for token, logprobs in steps]
    return seen


def _conversation(model: Any) -> list[Any]:
    """The number of prompt tokens of each turn that went through the model, and the answer."""
    history, turns = LRUPromptCache(), []

    def turn(prompt: list[int], *, forget: bool = False) -> list[int]:
        cache, rest = history.fetch_nearest_cache(NAME, prompt)
        cache = cache or make_prompt_cache(model)
        steps = generate_step(mx.array(rest), model, max_tokens=3, prefill_step_size=CHUNK, prompt_cache=cache)
        answer = [token for token, _ in steps]
        if not forget:
            history.insert_cache(NAME, prompt + answer, cache)
        turns.append((len(rest), answer))
        return prompt + answer

    # short, so that a window of 8 isn't full
    first = turn(_prompt(4, 2))
    turn(first + _prompt(4, 3), forget=True)
    second = turn(first + _prompt(9, 4))
    turn(second[: len(first) - 2] + _prompt(4, 5))
    turn(second[:-3] + _prompt(3, 6))
    assert history.nbytes > 0
    assert turns[1][0] == 4
    assert turns[2][0] == 9
    return turns
