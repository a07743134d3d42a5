"""Trace of the stages, phase by phase: requests and responses."""

from __future__ import annotations

from typing import Annotated, Final, Literal, get_args

import msgspec

from core.numbers import Seconds, Size
from core.requests.body import Body

Phase = Literal[
    "embed",  # the graph of the embedding, evaluated together with the layers
    "recv_wait",  # until a frame began to arrive; the graph of the next step is built meanwhile
    "to_bytes",  # from its header to its last byte
    "aead_open",
    "codec_decode",  # bytes to arrays
    "layers_compute",  # where no logits leave the layers' own evaluation, those too
    "codec_encode",  # arrays to bytes
    "aead_seal",
    "to_i32",  # choose the next work, and turn its token ids into an array
    "send_hop",  # until the system has the frame
    "logits_compute",  # norm, output head and the choice of tokens are on their way
    "allgather",  # ranks: until the system has the tokens that all of them need
    "readback",  # until the tokens are here and reported
]
PHASES: Final[tuple[Phase, ...]] = get_args(Phase)
STEP_TOTAL: Final = "STEP_TOTAL"
MOST_LAPS: Final = 32
MOST_TURNS: Final = 48  # per message: with as many laps each they fit into a control frame
MOST_STEPS: Final = 16_384  # kept by a stage
MOST_TRACED_S: Final = 60.0

PhaseNumber = Annotated[int, msgspec.Meta(ge=0, lt=len(PHASES))]
TurnKind = Literal["chunk", "step", "compose", "other"]


class PhaseTurn(msgspec.Struct, frozen=True, array_like=True):
    """One turn of a stage at a step. The head has several per step: sending, receiving, and reading the tokens."""

    step: Size
    kind: TurnKind  # "chunk" of a prompt, or a decode "step"
    start_s: Seconds  # monotonic clock of its Mac; equals the end of the turn before
    total_s: Seconds
    # (phase, seconds) in order
    laps: Annotated[tuple[tuple[PhaseNumber, Seconds], ...], msgspec.Meta(max_length=MOST_LAPS)]
    handle: Size = 0  # shared by rows that step together

    def ends(self, phase: Phase) -> float | None:
        numbers = [number for number, _ in self.laps]
        if (wanted := PHASES.index(phase)) not in numbers:
            return None
        last = len(numbers) - numbers[::-1].index(wanted)
        return self.start_s + sum(seconds for _, seconds in self.laps[:last])


class StageTrace(msgspec.Struct, frozen=True, kw_only=True):
    """Trace of one stage, by its own clock."""

    mac: str
    index: Size
    turns: tuple[PhaseTurn, ...]
    ahead_s: float = 0.0  # its clock minus the requesting Mac's
    error_s: Seconds = 0.0  # largest error of `ahead_s`


class TraceRequest(Body, frozen=True, kw_only=True):
    """Record a trace."""

    seconds: Annotated[float, msgspec.Meta(ge=0.1, le=MOST_TRACED_S)] = 5.0


class TraceResult(msgspec.Struct, frozen=True, kw_only=True):
    """Traces of all stages in ring order, the head first."""

    model: str
    seconds: float
    stages: tuple[StageTrace, ...]
