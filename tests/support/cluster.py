"""Real clusters for tests: the demo's nodes on loopback, and the answers of mlx-lm to compare with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from core.constraint import Constraint
from core.events import RequestDone, TokenEvent, Transfer
from core.requests.answers import ChatRequest, Message
from core.requests.plans import LoadRequest
from core.sampling_options import Sampling
from tui.cli.demo import Demo, DemoConfig
from tui.cli.watch import Watch

ANSWER_S = 120.0
GREEDY = Sampling()
LOAD = LoadRequest(model="")  # the model's name has no effect


class Answer(NamedTuple):
    """Tokens, text and last event of a request."""

    tokens: list[int]
    text: str
    done: RequestDone


@asynccontextmanager
async def running_demo(
    model: Path,
    budgets: Sequence[float],
    *,
    multicast: bool = False,
    has_spare: bool = False,
    api_ports: tuple[int, ...] = (),
    load: LoadRequest | None = LOAD,
) -> AsyncIterator[Demo]:
    """Paired nodes with the model loaded unless `load` is None; without multicast and spare workers unless needed."""
    said: list[str] = []
    demo = Demo(
        DemoConfig(
            budgets_gb=tuple(budgets),
            model=model,
            load=load or LOAD,
            multicast=multicast,
            has_spare=has_spare,
            api_ports=api_ports,
        ),
        said.append,
    )
    try:
        await demo.start()
        await demo.join()
        if load is not None:
            await demo.load()
        yield demo
    finally:
        await demo.stop()


async def begin(
    watch: Watch,
    prompt: str,
    max_tokens: int,
    *,
    sampling: Sampling = GREEDY,
    stop: Sequence[str] = (),
    constraint: Constraint | None = None,
) -> str:
    """Send a request; returns its id at once."""
    message = Message(role="user", content=prompt)
    request = ChatRequest(
        messages=(message,), max_tokens=max_tokens, sampling=sampling, stop=tuple(stop), constraint=constraint
    )
    return (await watch.client.chat(request)).request_id


async def finish(watch: Watch, request_id: str) -> Answer:
    """Wait for the end of a request."""

    def done(w: Watch) -> bool:
        return any(isinstance(e, RequestDone) and e.request_id == request_id for e in w.seen)

    await watch.until(done, ANSWER_S, "The answer")
    tokens = [e for e in watch.seen if isinstance(e, TokenEvent) and e.request_id == request_id]
    end = next(e for e in watch.seen if isinstance(e, RequestDone) and e.request_id == request_id)
    return Answer([t.token for t in tokens], "".join(t.text for t in tokens) + end.text, end)


async def ask(
    watch: Watch, prompt: str, max_tokens: int, *, sampling: Sampling = GREEDY, stop: Sequence[str] = ()
) -> Answer:
    """Send a request and wait for its end."""
    return await finish(watch, await begin(watch, prompt, max_tokens, sampling=sampling, stop=stop))


async def tokens_seen(watch: Watch, request_id: str, count: int) -> None:
    """Wait until the request has written `count` tokens."""
    await watch.until(
        lambda w: sum(isinstance(e, TokenEvent) and e.request_id == request_id for e in w.seen) >= count,
        ANSWER_S,
        "Writing",
    )


def reference(
    model: Path,
    prompts: Sequence[str],
    max_tokens: int,
    *,
    sampling: Sampling = GREEDY,
    kv_bits: int | None = None,
) -> list[list[int]]:
    """Token ids that mlx-lm computes in this process, with the same chunk size as our prefill."""
    import mlx.core as mx
    from mlx_lm import load
    from mlx_lm.generate import stream_generate

    from core.settings import PREFILL_CHUNK

    loaded, tokenizer = load(str(model))[:2]
    answers = []
    for prompt in prompts:
        chat = tokenizer.apply_chat_template([{"role": "user", "content": prompt}], add_generation_prompt=True)
        if sampling.seed is not None:
            mx.random.seed(sampling.seed)
        stream = stream_generate(
            loaded,
            tokenizer,
            chat,
            max_tokens=max_tokens,
            prefill_step_size=PREFILL_CHUNK,
            kv_bits=kv_bits,
            quantized_kv_start=0,
            **choosing(sampling),
        )
        answers.append([reply.token for reply in stream])
    return answers


def choosing(sampling: Sampling) -> dict[str, Any]:
    """Arguments that make generate_step and its kin choose by `sampling`; the seed is set before."""
    from mlx_lm.sample_utils import make_logits_processors, make_sampler

    processors = make_logits_processors(
        sampling.logit_bias,
        sampling.repetition_penalty,
        sampling.repetition_context,
        sampling.presence_penalty,
        sampling.presence_context,
        sampling.frequency_penalty,
        sampling.frequency_context,
    )
    sampler = make_sampler(sampling.temperature, sampling.top_p, sampling.min_p, top_k=sampling.top_k)
    return {"sampler": sampler, "logits_processors": processors}


Make = Callable[..., Path]


def fetched(demo: Demo, mark: int = 0, until: int | None = None) -> dict[str, int]:
    """Bytes downloaded or copied by each Mac, by device id, in the head's events `mark` to `until`."""
    came: dict[str, int] = {}
    there: dict[str, int] = {}
    for event in demo.head.seen[mark:until]:
        if isinstance(event, Transfer) and event.total:
            before = there.get(event.mac, event.done)
            came[event.mac] = came.get(event.mac, 0) + event.done - before
            there[event.mac] = event.done
            if event.is_over:
                del there[event.mac]
    return came


def bytes_below(folder: Path) -> int:
    """Disk space of the files below `folder`, in bytes; holes take none."""
    return sum(512 * file.stat().st_blocks for file in folder.rglob("*") if file.is_file())
