"""A conversation saved on one split of a model continues over another, as mlx-lm continues with its own cache."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import mlx.core as mx
import mlx_lm
import msgspec
import pytest
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import make_prompt_cache

from core.engine.sessions import reading, writing
from core.events import Topology
from core.models.slicing.caches import KV_GROUP
from core.requests.answers import Message
from core.worker.messages import (
    LinkBroken,
    LoadSession,
    SaveSession,
    SessionFailed,
    SessionLoaded,
    SessionSaved,
    StopSession,
)
from tests.support.cluster import Make
from tests.support.kinds import Kind, model_of
from tests.support.reloading import Rings, shared_rings
from tests.support.worker_ring import LINK_S, WorkerRing, a_request

CHUNK: Final = 8
ANSWER: Final = 12
FIRST: Final = list(range(40, 80))
SECOND: Final = [151, 152, 153, 154, 155]
SECRET: Final = b"s" * 32
SAID: Final = (Message(role="user", content="hello"), Message(role="assistant", content="good day"))


KINDS: Final = [
    pytest.param(Kind("llama"), id="plain", marks=pytest.mark.nightly),
    pytest.param(Kind("gemma3_text"), id="sliding", marks=pytest.mark.nightly),
    pytest.param(Kind("qwen3_next"), id="hybrid"),
    pytest.param(Kind("llama", kv_bits=8, head_dim=KV_GROUP), id="in few bits", marks=pytest.mark.nightly),
]
PLACES: Final[list[tuple[Topology, tuple[int, ...]]]] = [("reverse", (5,)), ("private", (2, 4)), ("single", ())]


def uninterrupted(directory: Path, kv_bits: int | None) -> tuple[list[int], list[int]]:
    """The answers of mlx-lm to FIRST, and then with the same cache to SECOND."""
    model: Any = mlx_lm.load(str(directory))[0]
    cache, answers = make_prompt_cache(model), []
    for prompt in (FIRST, SECOND):
        how = {"max_tokens": ANSWER, "prefill_step_size": CHUNK, "kv_bits": kv_bits, "quantized_kv_start": 0}
        steps = generate_step(mx.array(prompt), model, prompt_cache=cache, **how)
        answers.append([int(token) for token, _ in steps])
    assert len({*answers[0], *answers[1]}) >= ANSWER
    return answers[0], answers[1]


def tell(ring: WorkerRing, order: SaveSession | LoadSession) -> SessionSaved | SessionLoaded | SessionFailed:
    """Send an order to the head; returns its result."""
    ring.workers[0].send(order)
    return ended(ring)


def ended(ring: WorkerRing) -> SessionSaved | SessionLoaded | SessionFailed:
    """The result of the next order; broken links are made again meanwhile."""
    while True:
        report = ring.workers[0].next(LINK_S).report
        if isinstance(report, SessionSaved | SessionLoaded | SessionFailed):
            return report
        if isinstance(report, LinkBroken) and report.plan_gen == ring.plan.plan_gen:
            ring.relink()


def save(ring: WorkerRing, path: Path, tokens: list[int]) -> None:
    order = SaveSession(path=str(path), secret=SECRET, tokens=tokens, messages=SAID, created_at=5.0)
    assert tell(ring, order) == SessionSaved()


def load(ring: WorkerRing, path: Path) -> SessionSaved | SessionLoaded | SessionFailed:
    return tell(ring, LoadSession(path=str(path), secret=SECRET))


@pytest.fixture(scope="module")
def rings() -> Iterator[Rings]:
    with shared_rings() as shared:
        yield shared


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_saved_in_forward_goes_on_anywhere(made: Make, rings: Rings, tmp_path: Path, kind: Kind) -> None:
    directory, path = model_of(kind, made), tmp_path / "sessions" / "x.mcs"
    one, two = uninterrupted(directory, kind.kv_bits)
    batched = kind.kv_bits is None
    ring = rings.ring(directory, (3, 6), "forward", chunk=CHUNK, kv_bits=kind.kv_bits, batched=batched)
    assert list(ring.generate(FIRST, max_tokens=ANSWER).tokens) == one
    save(ring, path, FIRST + one)
    session = reading(path, SECRET)[0]
    assert session.tokens == FIRST + one[:-1]
    assert session.messages == SAID
    for topology, cuts in PLACES:
        ring = rings.ring(directory, cuts, topology, fresh=True, chunk=CHUNK, kv_bits=kind.kv_bits, batched=batched)
        assert load(ring, path) == SessionLoaded()
        answer = ring.generate([*FIRST, *one, *SECOND], max_tokens=ANSWER)
        assert list(answer.tokens) == two, topology
        assert answer.done.reused_tokens == len(session.tokens)


@pytest.fixture(scope="module")
def model(made: Make) -> Path:
    return made("llama")


@pytest.fixture
def ring(model: Path, rings: Rings) -> WorkerRing:
    return rings.ring(model, (3, 6), chunk=CHUNK, rows=4)


@pytest.fixture(scope="module")
def saved(model: Path, rings: Rings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved session of FIRST and its answer."""
    path, ring = tmp_path_factory.mktemp("saved") / "sessions" / "x.mcs", rings.ring(model, (3, 6), chunk=CHUNK, rows=4)
    answer = ring.generate(FIRST, max_tokens=ANSWER)
    save(ring, path, [*FIRST, *answer.tokens])
    return path


def test_other_answers_run_while_one_is_saved_and_loaded(
    model: Path, rings: Rings, ring: WorkerRing, saved: Path
) -> None:
    others = [a_request([n, n + 1, n + 2], max_tokens=40) for n in (100, 130)]
    expected = [answer.tokens for answer in ring.generate_all(others)]
    pair = rings.ring(model, (4,), fresh=True, chunk=CHUNK, rows=4)
    for request in others:
        pair.send(request)
    pair.workers[0].send(LoadSession(path=str(saved), secret=SECRET))
    answers = pair.collect([request.request_id for request in others])
    assert [answer.tokens for answer in answers] == expected
    answer = pair.generate([*reading(saved, SECRET)[0].tokens, 7, 8], max_tokens=2)
    assert answer.done.reused_tokens == len(FIRST) + ANSWER - 1


def test_what_is_stopped_at_any_moment_is_over_and_the_next_one_is_whole(
    model: Path, rings: Rings, saved: Path, tmp_path: Path
) -> None:
    session, caches = reading(saved, SECRET)
    held, path, stopped = dict(caches), tmp_path / "sessions" / "x.mcs", 0
    ring = rings.ring(model, (3, 6), fresh=True, chunk=CHUNK)
    loads = LoadSession(path=str(saved), secret=SECRET)
    assert tell(ring, loads) == SessionLoaded()
    saves = SaveSession(path=str(path), secret=SECRET, tokens=session.tokens, messages=SAID, created_at=5.0)
    for order in (saves, loads):
        for moment in range(8):
            ring.workers[0].send(order)
            time.sleep(moment / 1000)
            ring.workers[0].send(StopSession())
            ring.workers[0].send(order)  # a part of the earlier order may still be on the ring
            first, second = ended(ring), ended(ring)
            stopped += "It was stopped" in problem_of(first)
            assert problem_of(second) == ""
        if order is saves:
            again, kept = reading(path, SECRET)
            assert (again.tokens, dict(kept)) == (session.tokens, held)
    answer = ring.generate([*session.tokens, 7, 8], max_tokens=2)
    assert answer.done.reused_tokens == len(session.tokens)
    assert stopped


@pytest.mark.parametrize("topology", ["private", pytest.param("reverse", marks=pytest.mark.nightly)])
def test_links_that_break_hold_it_up_only(
    model: Path, rings: Rings, saved: Path, tmp_path: Path, topology: Topology
) -> None:
    path, tokens = tmp_path / "sessions" / "x.mcs", reading(saved, SECRET)[0].tokens
    ring = rings.ring(model, (3, 6), topology, fresh=True, chunk=CHUNK)
    through_a_break(ring, LoadSession(path=str(saved), secret=SECRET))
    answer = ring.generate([*tokens, 7, 8], max_tokens=2)
    assert answer.done.reused_tokens == len(tokens)
    said = [*tokens, 7, 8, *answer.tokens]
    through_a_break(ring, SaveSession(path=str(path), secret=SECRET, tokens=said, messages=SAID, created_at=5.0))
    session, caches = reading(path, SECRET)
    assert session.tokens == said[:-1]
    assert len(list(caches)) == session.caches


def through_a_break(ring: WorkerRing, order: SaveSession | LoadSession) -> None:
    """Relink right after an order; it has ended when an order to save nothing gets its own refusal."""
    ring.workers[0].send(order)
    ring.relink()
    while "no longer in memory" not in (said := problem_of(tell(ring, of_nothing(Path("x"))))):
        assert said == "" or "Another session" in said


def of_nothing(path: Path) -> SaveSession:
    """An order to save a row that no stage holds."""
    return SaveSession(path=str(path), secret=SECRET, tokens=[9, 9, 9], messages=SAID, created_at=5.0)


def problem_of(report: SessionSaved | SessionLoaded | SessionFailed) -> str:
    return f"{report.problem.what} {report.problem.fix}" if isinstance(report, SessionFailed) else ""


def rewritten(saved: Path, path: Path, others: dict[int, bytes] | None = None, **changes: Any) -> Path:
    """The same session with other facts or caches, signed by this Mac."""
    session, caches = reading(saved, SECRET)
    with writing(path, SECRET, msgspec.structs.replace(session, **changes)) as put:
        for index, data in (others or dict(caches)).items():
            put(index, data)
    return path


@pytest.mark.promise("P22")
def test_what_does_not_belong_here_is_refused_and_the_ring_goes_on(
    ring: WorkerRing, saved: Path, tmp_path: Path
) -> None:
    session, caches = reading(saved, SECRET)
    held = dict(caches)
    folder = tmp_path / "sessions"
    other = rewritten(saved, folder / "other.mcs", model="huge", fingerprint="e" * 64)
    assert "saved from huge (eeeeeeeeeeee), and llama" in problem_of(load(ring, other))
    assert "in 4 bits" in problem_of(load(ring, rewritten(saved, folder / "bits.mcs", kv_bits=4)))
    fewer = rewritten(saved, folder / "fewer.mcs", {0: held[0]}, caches=1)
    assert "holds 1 layer caches, and llama has 8" in problem_of(load(ring, fewer))
    short = rewritten(saved, folder / "short.mcs", {**held, 5: held[5][:-4]})
    assert "Layer cache 5 has " in problem_of(load(ring, short))
    shape = held[5][:6] + held[5][10:14] + held[5][6:10] + held[5][14:]
    shaped = rewritten(saved, folder / "shaped.mcs", {**held, 5: shape})
    assert "where this model holds float32 [1, 2, 51, 32]" in problem_of(load(ring, shaped))
    cut = folder / "cut.mcs"
    cut.write_bytes(saved.read_bytes()[:-1])
    cut.chmod(0o600)
    assert "changed or cut" in problem_of(load(ring, cut))
    answer = ring.generate([*session.tokens, 7, 8], max_tokens=2)
    assert answer.done.problem is None


def test_what_nobody_holds_any_more_is_not_saved(ring: WorkerRing, tmp_path: Path) -> None:
    assert "no longer in memory" in problem_of(tell(ring, of_nothing(tmp_path / "x.mcs")))
    assert not list(tmp_path.iterdir())


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", tmp_path], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("mounting a tmpfs needs root")
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_a_disk_that_is_full_leaves_the_old_file_and_the_row(
    ring: WorkerRing, tiny_disk: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    said = [*FIRST[::-1], *ring.generate(FIRST[::-1], max_tokens=ANSWER).tokens]
    path = tiny_disk / "x.mcs"
    path.write_bytes(b"old")
    order = SaveSession(path=str(path), secret=SECRET, tokens=said, messages=SAID, created_at=5.0)
    assert "No space left on device. Make room" in problem_of(tell(ring, order))
    assert path.read_bytes() == b"old"
    assert list(tiny_disk.iterdir()) == [path]
    save(ring, tmp_path_factory.mktemp("room") / "sessions" / "x.mcs", said)
