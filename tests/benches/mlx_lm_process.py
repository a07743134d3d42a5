"""mlx_lm in a process of its own, for comparing rings with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter
from typing import Any, Final, NamedTuple

from core.local.second_process import SecondProcess, second_process
from core.models.files.declared_packages import hide_others

ANSWER_S: Final = 300.0


class MlxLmAnswer(NamedTuple):
    """An answer with its times, in seconds of `perf_counter`."""

    asked: float  # when the request was made
    tokens: tuple[int, ...]
    times: tuple[float, ...]  # of each token


class MlxLmProcess:
    """The whole model in a process that loads it at the first request."""

    def __init__(self, process: SecondProcess) -> None:
        self._process, self.pid = process, process.pid

    def generate(self, prompt: Sequence[int], tokens: int) -> MlxLmAnswer:
        """Decode `tokens` greedy tokens. Raises WorkerDied or WorkerError."""
        self._process.send((tuple(prompt), tokens))
        answer: MlxLmAnswer = self._process.receive(ANSWER_S)
        return answer


@contextmanager
def mlx_lm_process(model: Path) -> Iterator[MlxLmProcess]:
    with second_process(partial(_answer, str(model))) as process:
        yield MlxLmProcess(process)


def _answer(directory: str, pipe: Connection[Any, Any]) -> None:
    hide_others()  # also from mlx_lm
    from mlx_lm import load

    from core.models.metal import obey_device

    obey_device()
    asked = pipe.recv()
    model, tokenizer = load(directory)[:2]
    while True:
        pipe.send(mlx_lm_answer(model, tokenizer, *asked))
        asked = pipe.recv()


def mlx_lm_answer(model: Any, tokenizer: Any, prompt: Sequence[int], tokens: int) -> MlxLmAnswer:
    """Decode `tokens` greedy tokens with mlx_lm in this process."""
    from mlx_lm import stream_generate

    asked, answer, times = perf_counter(), [], []
    for response in stream_generate(model, tokenizer, list(prompt), max_tokens=tokens):
        times.append(perf_counter())
        answer.append(response.token)
    return MlxLmAnswer(asked, tuple(answer), tuple(times))
