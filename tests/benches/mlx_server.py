"""mlx_lm.server over a model, on this machine's loopback and over plain HTTP, for comparison."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from time import monotonic, perf_counter, sleep
from typing import Any, Final

from core.errors import WorkerError
from core.settings import LOOPBACK_HOST
from tests.benches.mlx_lm_process import MlxLmAnswer

START_S: Final = 120.0
ANSWER_S: Final = 300.0
STOP_S: Final = 5.0
LOOK_S: Final = 0.1
# computes where this bench does
_SERVE: Final = """
from core.models.metal import obey_device
obey_device()
from mlx_lm.server import main
main()
"""
_TALK: Final = b"data: {"


class MlxServer:
    """The server on that port."""

    def __init__(self, pid: int, port: int) -> None:
        self.pid, self._port = pid, port

    def generate(self, prompt: str, tokens: int) -> MlxLmAnswer:
        """Greedy tokens after `prompt`, timed as they are streamed, without their ids. Raises WorkerError."""
        asked, times = perf_counter(), []
        with self._asked(_body(prompt, tokens) | {"stream": True}) as reply:
            for line in reply:
                if line.startswith(_TALK) and json.loads(line.removeprefix(b"data: "))["choices"][0].get("text"):
                    times.append(perf_counter())
        return MlxLmAnswer(asked, (), _spread(times, tokens))

    def tokens(self, prompt: str, tokens: int) -> tuple[int, ...]:
        """The same tokens, by their ids. Raises WorkerError."""
        with self._asked(_body(prompt, tokens) | {"logprobs": True}) as reply:
            answer: dict[str, Any] = json.loads(reply.read())
            return tuple(int(each["id"]) for each in answer["choices"][0]["logprobs"]["content"])

    @contextmanager
    def _asked(self, body: dict[str, Any]) -> Iterator[http.client.HTTPResponse]:
        with closing(http.client.HTTPConnection(LOOPBACK_HOST, self._port, timeout=ANSWER_S)) as connection:
            try:
                connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
                reply = connection.getresponse()
                if reply.status != http.HTTPStatus.OK:
                    raise WorkerError(f"mlx_lm.server refused: {reply.read(200).decode('utf-8', 'replace')}")
                yield reply
            except (OSError, http.client.HTTPException, LookupError, ValueError) as error:
                raise WorkerError(f"mlx_lm.server gave no answer: {error}") from error

    def is_ready(self) -> bool:
        """Whether it answers."""
        with suppress(OSError), closing(http.client.HTTPConnection(LOOPBACK_HOST, self._port, timeout=1)) as connection:
            connection.request("GET", "/health")
            return connection.getresponse().status == http.HTTPStatus.OK
        return False


def _body(prompt: str, tokens: int) -> dict[str, Any]:
    return {"model": "default_model", "prompt": prompt, "max_tokens": tokens, "temperature": 0.0}


def _spread(times: list[float], tokens: int) -> tuple[float, ...]:
    """A time for each of `tokens` tokens, spread evenly between the first piece and the last.

    Some tokens arrive together, since half a character is not sent. Raises WorkerError.
    """
    if len(times) < 2 or tokens < 2:
        raise WorkerError("mlx_lm.server told too few pieces to measure.")
    step = (times[-1] - times[0]) / (tokens - 1)
    return tuple(times[0] + step * index for index in range(tokens))


@contextmanager
def mlx_server(model: Path) -> Iterator[MlxServer]:
    """It runs over the model in this directory until the end. Raises WorkerError."""
    with socket.create_server((LOOPBACK_HOST, 0)) as door:
        port = int(door.getsockname()[1])
    command = [sys.executable, "-c", _SERVE, "--model", str(model), "--host", LOOPBACK_HOST, "--port", str(port)]
    env = {**os.environ, "PYTHONSAFEPATH": "1", "HF_HUB_OFFLINE": "1"}
    with TemporaryFile() as said:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=env)
        try:
            server, until = MlxServer(process.pid, port), monotonic() + START_S
            while not server.is_ready():
                if process.poll() is not None or monotonic() > until:
                    said.seek(0)
                    raise WorkerError(f"mlx_lm.server did not start: {said.read()[-500:].decode('utf-8', 'replace')}")
                sleep(LOOK_S)
            yield server
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_S)
            process.kill()
            process.wait()
