"""mlx_lm in a process of its own, which rings are compared with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter
from typing import Any, Final, NamedTuple

from core.local.second_process import SecondProcess, second_process

ANSWER_S: Final = 300.0


class MlxLmAnswer(NamedTuple):
    """An answer: when it was asked for, and its token ids and when each was there, in seconds of one clock."""

    asked: float
    tokens: tuple[int, ...]
    times: tuple[float, ...]


class _SoloRequest(NamedTuple):
    directory: str
    prompt: tuple[int, ...]
    tokens: int


class MlxLmProcess:
    """The whole model in that process, which loads it when it is asked first."""

    def __init__(self, process: SecondProcess, model: Path) -> None:
        self._process, self._directory = process, str(model)
        self.pid = process.pid

    def generate(self, prompt: Sequence[int], tokens: int) -> MlxLmAnswer:
        """Greedy tokens behind `prompt`. Raises WorkerDied or WorkerError."""
        self._process.send(_SoloRequest(self._directory, tuple(prompt), tokens))
        said: MlxLmAnswer = self._process.receive(ANSWER_S)
        return said


@contextmanager
def mlx_lm_process(model: Path) -> Iterator[MlxLmProcess]:
    """mlx_lm over the model in this directory, until the end."""
    with second_process(_answer) as process:
        yield MlxLmProcess(process, model)


def _answer(pipe: Connection[Any, Any]) -> None:
    from mlx_lm import load

    from core.models.metal import obey_device

    obey_device()
    asked: _SoloRequest = pipe.recv()
    model, tokenizer = load(asked.directory)[:2]
    while True:
        pipe.send(mlx_lm_answer(model, tokenizer, asked.prompt, asked.tokens))
        asked = pipe.recv()


def mlx_lm_answer(model: Any, tokenizer: Any, prompt: Sequence[int], tokens: int) -> MlxLmAnswer:
    """`tokens` greedy tokens behind `prompt`, by mlx_lm in this process."""
    from mlx_lm import stream_generate

    asked, said, times = perf_counter(), [], []
    for response in stream_generate(model, tokenizer, list(prompt), max_tokens=tokens):
        times.append(perf_counter())
        said.append(response.token)
    return MlxLmAnswer(asked, tuple(said), tuple(times))
