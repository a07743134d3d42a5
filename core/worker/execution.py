"""Work of one stage: its layers, and its share of embedding, output head and sampling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import mlx.core as mx

from core.engine.handle_shapes import sources, target, used_up
from core.engine.ring_work import Drop, Op
from core.errors import GroupFailed, LinkError, MaclusterError, Problem, ProtocolError, StageFailed
from core.link.arrays import Arrived, unpacked
from core.plan.stage_roles import StageRole
from core.worker.kv_parts import Exchange, KvPart
from core.worker.kv_spans import KvSpan, serve_span
from core.worker.stage import LoadedStage
from core.worker.work_frames import WorkFrame

ALL = StageRole(embeds=True, runs=True, outputs=True)

_T = TypeVar("_T")


class Execution:
    """Executes work on a stage. Failed work taints its handles: further work on them fails the same way until they are
    dropped. `peer` names this stage in errors; "" on the head.

    Methods raise StageFailed for failures, and ProtocolError for requests that no honest head sends.
    """

    def __init__(self, stage: LoadedStage, peer: str = "") -> None:
        self.stage = stage
        self._peer = peer
        self._tainted: dict[int, Problem] = {}
        self._exchange = Exchange(stage)

    @property
    def handles(self) -> int:
        return self.stage.handles + len(self._tainted)

    def reset(self) -> None:
        self.stage.reset()
        self._exchange.reset()
        self._tainted.clear()

    def taint(self, handles: Sequence[int], problem: Problem) -> None:
        for handle in handles:
            self._tainted[handle] = problem

    def compose(self, step: int, ops: Sequence[Op]) -> None:
        with self.stage.meter.span("compose", step, 0):
            self._attempt(made(ops), lambda: self.stage.compose([sound for op in ops for sound in self._sound(op)]))

    def forward(
        self, work: WorkFrame, role: StageRole, arrays: Sequence[Arrived], *, ahead: bool = False
    ) -> list[mx.array]:
        """The output of this stage for `arrays`: token ids [B, L] if the role embeds, else a boundary [B, L, ...].
        Returns a boundary, or with the output head logits [B, V] of the last position, [B, L, V] if `work.every`;
        nothing useful if `work.quiet`. With `ahead`, neither the tokens nor the result are computed yet.
        """
        self.check(work.handle)
        return self._attempt([work.handle], lambda: self._forward(work, role, arrays, ahead=ahead))

    def forward_together(
        self,
        work: WorkFrame,
        role: StageRole,
        tokens: mx.array,
        *,
        ahead: bool = False,
        before: Sequence[mx.array] = (),
    ) -> list[mx.array]:
        """Like `forward`, while all other ranks do the same; `ahead`, only the first rank has the `tokens`. Waits for
        `before` once it is in flight. Raises GroupFailed on any failure: the other ranks would wait for this one's sum.
        """
        try:
            self.check(work.handle)
            if ahead:
                with self.stage.computing():
                    tokens = self.stage.layers.shared(tokens)
            out = self._forward(work, role, [tokens], ahead=ahead)
            with self.stage.computing():
                mx.eval(before)
            return out
        except MaclusterError as error:
            what = f"{self._peer}: {error.what}" if self._peer else error.what
            raise GroupFailed(what, error.fix) from error

    def check(self, handle: int) -> None:
        if problem := self._tainted.get(handle):
            raise StageFailed(problem.what, problem.fix)

    def exchange(self, handle: int, part: KvPart) -> KvPart:
        """Give or take a part of a cache of this stage; pass others on unchanged."""
        if part.is_answer or part.cache not in self.stage.layers.caches.indices:
            return part
        self.check(handle)
        return self._attempt([handle], lambda: self._exchange.answer(handle, part))

    def mirror(self, handle: int, span: KvSpan) -> KvSpan:
        """Cut or paste this stage's part of a mirrored span; failures leave the handle unchanged."""
        return span if handle in self._tainted else serve_span(self.stage, handle, span)

    def _forward(
        self, work: WorkFrame, role: StageRole, arrays: Sequence[Arrived], *, ahead: bool = False
    ) -> list[mx.array]:
        stage, handle = self.stage, work.handle
        stage.meter.saw("token ids" if role.embeds else "activations")
        layers = stage.meter.span("chunk" if work.quiet else "step", work.step, handle)
        if stage.layers.rank:
            stage.meter.saw("activations")
        if role == ALL:
            stage.meter.saw("logits")
            with layers:
                return [stage.whole(handle, unpacked(arrays[0]), every=work.every, ahead=ahead)]
        out: list[mx.array] = []
        if role.runs:
            with layers:
                if role.embeds:
                    # the output of a stage that is no rank is needed at once
                    out = stage.embed(handle, unpacked(arrays[0]), ahead=ahead and stage.layers.shares_tokens)
                else:
                    out = stage.run(handle, arrays, work.position)
            stage.meter.saw("activations")
        if role.outputs and not work.quiet:
            stage.meter.saw("logits")
            with stage.meter.span("output", work.step, handle):
                return [stage.output(handle, out or arrays, every=work.every)]
        return out

    def _attempt(self, handles: Sequence[int], work: Callable[[], _T]) -> _T:
        try:
            return work()
        except LinkError:
            raise
        except MaclusterError as error:
            told = StageFailed(f"{self._peer}: {error.what}" if self._peer else error.what, error.fix)
            self.taint(handles, told.problem)
            raise told from error

    def _sound(self, op: Op) -> list[Op]:
        """`op`, or if it would build on a tainted handle: drop what it uses up, and taint the rest."""
        if isinstance(op, Drop):
            self._tainted.pop(op.handle, None)
            return [op]
        bad = [self._tainted[handle] for handle in sources(op) if handle in self._tainted]
        if not bad:
            return [op]
        gone = [handle for handle in used_up(op) if handle != target(op)]
        for handle in gone:
            self._tainted.pop(handle, None)
        self._tainted[target(op)] = bad[0]
        return [Drop(handle) for handle in gone]


def made(ops: Sequence[Op]) -> list[int]:
    return [target(op) for op in ops if not isinstance(op, Drop)]


def tokens_in(arrays: Sequence[mx.array], vocabulary: int) -> mx.array:
    """Token ids [B, L] from a link. Raises ProtocolError: too large ones are read beyond arrays."""
    if len(arrays) != 1 or arrays[0].ndim != 2 or arrays[0].dtype != mx.int32 or not arrays[0].size:
        raise ProtocolError("A frame of token ids contains something else.")
    (tokens,) = arrays
    if mx.any((tokens < 0) | (tokens >= vocabulary)).item():
        raise ProtocolError(f"A token id is out of range: the vocabulary has {vocabulary} tokens.")
    return tokens
