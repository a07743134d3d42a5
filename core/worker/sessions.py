"""Sessions between the ring and a file: one cache part at a time goes round, next to running answers.

Work on the ring is first in, first out, so a requested part follows all work of its row, and a part to load follows the
composition that makes room for it. A new link resends parts in flight as usual.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from mlx_lm._version import __version__ as MLX_LM

from core.engine.prefix_cache import CachedPrefix
from core.engine.scheduler import Scheduler
from core.engine.sessions import SessionFile, check_fits, prefix_hash, reading, writing
from core.errors import Busy, MaclusterError, Problem, SessionError
from core.events import Plan
from core.plan.topology import has_ranks
from core.worker.kv_parts import PART_BYTES, KvPart, Verb
from core.worker.messages import LoadSession, Report, SaveSession, SessionFailed, SessionLoaded, SessionSaved
from core.worker.pipeline import Pipeline, StepAnswer

Exchange = Generator[KvPart, KvPart, None]


class SessionRequest(NamedTuple):
    """The part of the row `handle` that goes round next."""

    handle: int
    part: KvPart


class _Move(NamedTuple):
    """The row that is saved or loaded. `exchange` yields the part to request, and is sent the result."""

    handle: int
    exchange: Exchange
    done: SessionSaved | SessionLoaded


class SessionTransfers:
    """Saves or loads one session at a time. `put` and `handle_answer` continue what `save` and `load` start."""

    def __init__(self, plan: Plan, pipeline: Pipeline, scheduler: Scheduler, report: Callable[[Report], None]) -> None:
        self._plan, self._pipeline, self._scheduler, self._report = plan, pipeline, scheduler, report
        self._caches = pipeline.stage.layers.caches.count
        self._move: _Move | None = None
        self._due: SessionRequest | None = None
        self._asked: SessionRequest | None = None  # the part on the ring; parts of abandoned sessions may be there too

    @property
    def is_busy(self) -> bool:
        return self._move is not None

    @property
    def is_due(self) -> bool:
        return self._due is not None

    def save(self, order: SaveSession) -> None:
        """Start saving; the row stays unchanged until the end."""
        try:
            self._check_free()
            parked = chosen(self._scheduler.parked, order.tokens, self._pipeline.stage.layers.caches.trim_limit)
            self._scheduler.pin(parked.handle)
        except MaclusterError as error:
            self._report(SessionFailed(problem=error.problem))
            return
        exchange = _saving(Path(order.path), order.secret, self._session(order, parked.tokens))
        self._move = _Move(parked.handle, exchange, SessionSaved())
        self._go_on(lambda: next(exchange))

    def load(self, order: LoadSession) -> None:
        """Start loading; no prompt reuses the row before the end."""
        try:
            self._check_free()
            session, caches = reading(Path(order.path), order.secret)
            self._check(session)
            handle = self._scheduler.hold(session.tokens).handle
        except MaclusterError as error:
            self._report(SessionFailed(problem=error.problem))
            return
        exchange = _loading(caches)
        self._move = _Move(handle, exchange, SessionLoaded())
        self._go_on(lambda: next(exchange))

    def put(self) -> None:
        due, self._due = self._due, None
        if due:
            self._asked = due
            self._pipeline.exchange(due.handle, due.part, due)

    def handle_answer(self, asked: SessionRequest, answer: StepAnswer) -> None:
        """Take the result of a part; one of an abandoned session is ignored."""
        move = self._move
        if move is None or asked is not self._asked:
            return
        if answer.problem or not answer.part:
            self._scheduler.gone(move.handle)  # it is of no more use
            self.fail(answer.problem or SessionError("Its layers did not arrive.").problem)
        else:
            came = answer.part
            self._go_on(lambda: move.exchange.send(_expected(asked.part, came)))

    def stop(self) -> None:
        self.fail(SessionError("It was stopped; nothing was kept.").problem)

    def fail(self, problem: Problem) -> None:
        """Give up the save or load in progress, and leave nothing."""
        move, self._move, self._due, self._asked = self._move, None, None, None
        if move:
            move.exchange.close()
            if isinstance(move.done, SessionLoaded):
                self._scheduler.gone(move.handle)
            self._scheduler.unpin(move.handle)
            self._report(SessionFailed(problem=problem))

    def _go_on(self, step: Callable[[], KvPart]) -> None:
        assert self._move
        try:
            self._due = SessionRequest(self._move.handle, step())
        except StopIteration:
            self._end(self._move)
        except SessionError as error:
            self.fail(error.problem)

    def _end(self, move: _Move) -> None:
        self._move = None
        if isinstance(move.done, SessionLoaded):
            self._scheduler.settle(move.handle)
        else:
            self._scheduler.unpin(move.handle)
        self._report(move.done)

    def _session(self, order: SaveSession, tokens: Sequence[int]) -> SessionFile:
        return SessionFile(
            model=self._plan.model,
            fingerprint=self._plan.fingerprint,
            mlx_lm=MLX_LM,
            kv_bits=self._plan.kv_bits,
            tokens=list(tokens),
            prefix_hash=prefix_hash(tokens),
            caches=self._caches,
            messages=order.messages,
            created_at=order.created_at,
            macs=tuple(part.device_id for part in self._plan.parts),
        )

    def _check_free(self) -> None:
        if self._move:
            raise Busy("Another session is being saved or loaded.")
        if has_ranks(self._plan):
            what = "Every Mac has a part of each layer and its cache, so sessions can't be saved or loaded."
            raise SessionError(what, "Load the model with --parallelism pp, which splits it by layers.")

    def _check(self, session: SessionFile) -> None:
        plan = self._plan
        check_fits(session, model=plan.model, fingerprint=plan.fingerprint, mlx_lm=MLX_LM, kv_bits=plan.kv_bits)
        if session.caches != self._caches:
            raise SessionError(f"It holds {session.caches} layer caches, and {plan.model} has {self._caches}.")
        if not 0 < len(session.tokens) < plan.context:
            what = f"It holds {len(session.tokens)} tokens, and the context has {plan.context}."
            raise SessionError(what, "Load the model with a larger --context.")


def chosen(rows: Sequence[CachedPrefix], tokens: Sequence[int], trim_limit: int | None) -> CachedPrefix:
    """The most useful row for continuing a conversation. A stopped one may have a few tokens more than were reported,
    which are trimmed later if the caches allow it. Raises SessionError if no row fits.
    """
    said = tuple(tokens)

    def useful(row: CachedPrefix) -> int:
        common = min(len(row.tokens), len(said))
        can_trim = trim_limit is None or len(row.tokens) < trim_limit
        fits = row.tokens[:common] == said[:common] and (len(row.tokens) <= common or can_trim)
        return common if fits else 0

    best = max(rows, key=useful, default=None)
    if best is None or not useful(best):
        raise SessionError("This conversation is no longer in memory.", "Continue the conversation, then save it.")
    return best


def _saving(path: Path, secret: bytes, session: SessionFile) -> Exchange:
    with writing(path, secret, session) as put:
        for index in range(session.caches):
            data, total = bytearray(), 1
            while len(data) < total:
                part = yield KvPart(Verb.FETCH, index, len(data))
                data += part.data
                total = part.total
            put(index, data)


def _loading(caches: Iterator[tuple[int, bytes]]) -> Exchange:
    for index, data in caches:
        view = memoryview(data)
        for at in range(0, len(data), PART_BYTES):
            yield KvPart(Verb.FILL, index, at, len(data), view[at : at + PART_BYTES])


def _expected(asked: KvPart, came: KvPart) -> KvPart:
    verb = Verb.HELD if asked.verb is Verb.FETCH else Verb.FILLED
    if came[:3] != (verb, asked.cache, asked.offset) or (verb is Verb.HELD and not came.data):
        raise SessionError(f"No Mac of the plan has layer cache {asked.cache}.", "Load the model again.")
    return came
