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

MEETING = """
import os
import select
from time import monotonic
from core.errors import Problem
from core.worker.messages import Cancel, Failed
from core.worker.pipe import private_pipe

inbox, outbox = private_pipe()
write, read, taken, more = os.write, os.read, [], [Cancel(request_id="b")]

def take():
    if (command := inbox.take()) is not None:
        taken.append(command.request_id)

def write_amid(fd, data):
    if fd != inbox._wake_write:
        return write(fd, data)
    take()
    count = write(fd, data)
    take()
    return count

def read_amid(fd, count):
    data = read(fd, count)
    if fd == inbox._wake_read and more:
        inbox._commands.append(more.pop())
        inbox._wake()
    return data

os.write, os.read = WAYS
until, is_awake = monotonic() + 10, True
while is_awake and monotonic() < until:
    is_awake = bool(select.select([inbox.fileno()], [], [], 0.2 if taken else 10)[0])
    take()
rests = "never rests" if is_awake else "then rests"
outbox.put(Failed(plan_gen=0, problem=Problem(kind="said", what=f"takes {' '.join(taken)}, {rests}")))
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


@pytest.mark.parametrize(
    ("ways", "takes"),
    [
        pytest.param("write_amid, read", "a", id="it is looked for while it comes"),
        pytest.param("write, read_amid", "a b", id="one comes while another is taken"),
    ],
)
def test_no_command_is_overlooked_and_behind_the_last_one_is_rest(ways: str, takes: str) -> None:
    with process(MEETING.replace("WAYS", ways)) as child:
        tell(child, Cancel(request_id="a"))
        assert said(child) == f"takes {takes}, then rests"


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
        child.stdout.close()  # standard input stays open: only a failed write shows it that the node is gone
        assert child.wait(timeout=5) == 0
