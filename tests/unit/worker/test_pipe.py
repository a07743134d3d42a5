from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import pytest

from core.engine.requests import Request
from core.pipe_messages import LENGTH, pack
from core.worker.messages import Cancel, Command, Failed, Report, unpack_report

READER = """
import select
from core.engine.requests import Request
from core.errors import Problem
from core.worker.messages import Failed
from core.worker.pipe import private_pipe

inbox, outbox = private_pipe()
print("a stray print must not spoil the pipe", flush=True)

def say(text):
    outbox.put(Failed(plan_gen=0, problem=Problem(kind="said", what=text)))

while True:
    command = inbox.take()
    if command is None:
        select.select([inbox.fileno()], [], [])
    elif isinstance(command, Request):
        say(f"{command.request_id} {len(command.tokens)}")
    else:
        say(type(command).__name__)
"""

TAKING = """
import select
from core.errors import Problem
from core.worker.messages import Failed
from core.worker.pipe import private_pipe

inbox, outbox = private_pipe()

def wakes(timeout_s):
    return bool(select.select([inbox.fileno()], [], [], timeout_s)[0])

taken = 0
while taken < 3000:
    if inbox.take() is not None:
        taken += 1
    elif not wakes(10):
        break
spurious = 0
while wakes(0.05) and spurious < 5:
    inbox.take()
    spurious += 1
outbox.put(Failed(plan_gen=0, problem=Problem(kind="said", what=f"{taken} taken, awake {spurious} times for nothing")))
"""

BUSY = """
from core.worker.messages import Listening
from core.worker.pipe import private_pipe

inbox, outbox = private_pipe()
outbox.put(Listening(pid=1, port=2))
while True:
    pass
"""

TALKING = """
from core.worker.messages import Listening
from core.worker.pipe import private_pipe

inbox, outbox = private_pipe()
while True:
    outbox.put(Listening(pid=1, port=2))
"""


def generate(request_id: str, tokens: int = 1) -> Request:
    return Request(request_id=request_id, tokens=[7] * tokens, max_tokens=1)


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


def test_commands_come_in_order_and_whole_whatever_is_printed() -> None:
    with process(READER) as child:
        tell(child, Cancel(request_id="b"), generate("a"), generate("b"))
        assert [said(child) for _ in range(3)] == ["Cancel", "a 1", "b 1"]
        tell(child, generate("d"), *(Cancel(request_id="x") for _ in range(5000)))
        assert [said(child) for _ in range(5001)] == ["d 1", *["Cancel"] * 5000]
        tell(child, generate("e", tokens=3_000_000))
        assert said(child) == "e 3000000", "what is longer than a pipe arrives whole"
        out, err = child.communicate(timeout=5)
        assert (child.returncode, out) == (0, b"")
        assert err == b"a stray print must not spoil the pipe\n"


def test_none_is_overlooked_and_there_is_rest_when_all_are_taken() -> None:
    with process(TAKING) as child:
        for number in range(3000):  # each while the one before is taken
            tell(child, Cancel(request_id=str(number)))
        assert said(child) in {f"3000 taken, awake {count} times for nothing" for count in (0, 1)}


@pytest.mark.parametrize(
    "last_words",
    [
        pytest.param(b"", id="none"),
        pytest.param(LENGTH.pack(100) + b"half", id="half"),
        pytest.param(LENGTH.pack(1 << 31), id="too-long"),
        pytest.param(LENGTH.pack(4) + b"\xc1" * 4 + LENGTH.pack(4), id="no-command"),
    ],
)
def test_a_worker_ends_with_its_node_even_in_the_middle_of_work(last_words: bytes) -> None:
    with process(BUSY) as child:
        hear(child.stdout)
        out, err = child.communicate(last_words, timeout=2)
        assert (child.returncode, out, err) == (0, b"", b"")


def test_a_worker_ends_with_its_node_however_much_it_was_told_in_the_middle_of_work() -> None:
    with process(BUSY.replace("pass", "__import__('time').sleep(60)")) as child:
        hear(child.stdout)
        out, err = child.communicate(pack(Cancel(request_id="x")) * 80_000, timeout=20)
        assert (child.returncode, out, err) == (0, b"", b"")


def test_a_worker_that_has_something_to_say_ends_where_nobody_hears_it() -> None:
    with process(TALKING) as child:
        hear(child.stdout)
        assert child.stdout
        child.stdout.close()  # standard input stays: what it writes is what shows it that the node is gone
        assert child.wait(timeout=5) == 0
