from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import pytest

from core.worker.messages import LENGTH, Cancel, Command, Failed, Generate, Report, pack, unpack_report

SORTER = """
import select, sys
from core.errors import Problem
from core.worker.desk import Desk
from core.worker.messages import Failed, Generate
from core.worker.pipe import private_pipe

inbox, outbox = private_pipe()
print("a stray print must not spoil the pipe", flush=True)
desk = Desk(inbox)

def say(text):
    outbox.put(Failed(plan_gen=0, problem=Problem(kind="said", what=text)))

while True:
    command = desk.next()
    if command is None:
        select.select([inbox.fileno()], [], [])
    elif isinstance(command, Generate):
        was = desk.cancelled(command.request_id)
        desk.forget(command.request_id)
        say(f"{command.request_id} cancelled={was} after={desk.cancelled(command.request_id)}")
    else:
        say(type(command).__name__)
"""

BUSY = """
from core.worker.messages import Listening
from core.worker.pipe import private_pipe

inbox, outbox = private_pipe()
outbox.put(Listening(pid=1, port=2))
while True:
    pass
"""


def generate(request_id: str, tokens: int = 1) -> Generate:
    return Generate(
        request_id=request_id, tokens=[7] * tokens, max_tokens=1, temperature=0.0, top_p=0.0, seed=None, eos=[]
    )


@contextmanager
def process(script: str) -> Iterator[subprocess.Popen[bytes]]:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", script], stdin=pipe, stdout=pipe, stderr=pipe) as child:
        try:
            yield child
        finally:
            child.kill()


def tell(child: subprocess.Popen[bytes], *commands: Command) -> None:
    assert child.stdin
    child.stdin.write(b"".join(pack(c) for c in commands))
    child.stdin.flush()


def hear(stream: IO[bytes] | None) -> Report:
    assert stream
    (length,) = LENGTH.unpack(stream.read(LENGTH.size))
    return unpack_report(stream.read(length))


def said(child: subprocess.Popen[bytes]) -> str:
    report = hear(child.stdout)
    assert isinstance(report, Failed)
    return report.problem.what


def test_cancels_count_at_once_and_the_rest_waits_its_turn() -> None:
    with process(SORTER) as child:
        tell(child, Cancel(request_id="b"), generate("a"), generate("b"), generate("b"))
        assert [said(child) for _ in range(3)] == [
            "a cancelled=False after=False",
            "b cancelled=True after=False",
            "b cancelled=False after=False",
        ]
        tell(child, generate("d"), *(Cancel(request_id="x") for _ in range(5000)))
        assert said(child) == "d cancelled=False after=False"
        tell(child, generate("e", tokens=3_000_000))
        assert said(child) == "e cancelled=False after=False", "what is longer than a pipe arrives whole"
        out, err = child.communicate(timeout=5)
        assert (child.returncode, out) == (0, b"")
        assert err == b"a stray print must not spoil the pipe\n"


@pytest.mark.parametrize("last_words", [b"", LENGTH.pack(100) + b"half", LENGTH.pack(1 << 31)])
def test_a_worker_ends_with_its_node_even_in_the_middle_of_work(last_words: bytes) -> None:
    with process(BUSY) as child:
        hear(child.stdout)
        out, err = child.communicate(last_words, timeout=2)
        assert (child.returncode, out, err) == (0, b"", b"")
