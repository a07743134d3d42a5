"""The ring of bare workers that benches and other tests use."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import mlx_lm
import pytest
from mlx_lm.generate import generate_step

from core.errors import LinkError, ModelNotFound, WorkerDied, WorkerError
from core.worker.messages import Token
from tests.benches.stage_timeline import activity, timeline
from tests.support.maker import make_model
from tests.support.worker_ring import a_request, ask, worker_ring

PROMPT = (101, 102, 103, 104)
OTHER = (104, 103, 102, 101, 100, 99, 98, 97)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("ring") / "model"
    make_model(directory, "llama", layers=4)
    return directory


@pytest.fixture(scope="module")
def alone(model: Path) -> tuple[int, ...]:
    """The answer of mlx_lm in one process."""
    whole = mlx_lm.load(str(model))[0]
    return tuple(int(token) for token, _ in generate_step(mx.array(PROMPT), whole, max_tokens=8))


def test_a_ring_of_bare_workers_answers_as_one_process_does(model: Path, alone: tuple[int, ...]) -> None:
    with worker_ring(model, (1, 3)) as ring:
        answer = ring.generate(PROMPT, max_tokens=8)
        pids = {worker.pid for worker in ring.workers}
    assert answer.tokens == alone
    assert answer.done.finish_reason == "length"
    assert [sample.index for sample in answer.samples] == [0, 1, 2]
    assert len(answer.times) == 8
    assert len(pids) == 3
    assert not any(worker.is_alive for worker in ring.workers)


def test_a_prompt_that_is_in_memory_is_not_measured_as_one_that_is_read(model: Path, alone: tuple[int, ...]) -> None:
    with worker_ring(model, ()) as ring:
        answer = ring.generate(PROMPT, max_tokens=8)
        assert (answer.tokens, answer.samples) == (alone, ())
        assert ask(ring, OTHER, 2).answer.done.reused_tokens == 0
        with pytest.raises(WorkerError, match="in memory"):
            ask(ring, OTHER, 2)
        timed = ask(ring, OTHER, 2, fresh=False)
    assert timed.answer.done.reused_tokens == len(OTHER) - 1
    assert 0 < timed.first_s < timed.seconds


def test_a_reroute_to_nowhere_fails_and_leaves_nothing(model: Path) -> None:
    with pytest.raises(LinkError), worker_ring(model, (2,), reroute=lambda stage, port: 1 if stage else port):
        pytest.fail("the ring cannot be linked")


def test_a_ring_is_reached_where_reroute_says_linked_anew_in_an_answer_and_a_dead_worker_is_noticed(
    model: Path, alone: tuple[int, ...]
) -> None:
    asked: list[tuple[int, int]] = []

    def reroute(stage: int, port: int) -> int:
        asked.append((stage, port))
        return port

    with worker_ring(model, (2,), reroute=reroute) as ring:
        assert asked == [(worker.index, worker.port) for worker in ring.workers]

        def relink(token: Token) -> None:
            if token.index == 2:
                ring.relink()

        answer = ring.generate(PROMPT, max_tokens=8, on_token=relink)
        assert ring.plan.plan_gen == 2
        assert len(asked) == 4
        assert answer.tokens == alone

        def kill_the_tail(token: Token) -> None:
            if token.index == 2:
                ring.workers[1].kill()

        with pytest.raises(WorkerDied):
            ring.generate(PROMPT, max_tokens=2000, on_token=kill_the_tail)
        assert not ring.workers[1].is_alive
        assert ring.workers[0].is_alive


def test_with_one_lane_no_two_stages_compute_at_once(model: Path) -> None:
    with worker_ring(model, (2,), lanes=1) as ring:
        answers = ring.generate_all([a_request((101 + row,), max_tokens=8) for row in range(4)])
        traces = ring.traces()
    assert [len(answer.tokens) for answer in answers] == [8] * 4
    assert all(any(span.kind == "step" for span in trace) for trace in traces)
    assert activity(timeline(traces, "handle")).together == 0


def test_a_model_that_is_not_there_starts_nothing(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound), worker_ring(tmp_path / "none", (2,)):
        pytest.fail("there is no model")
