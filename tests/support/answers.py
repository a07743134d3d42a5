"""The answers of a head's node. The worker's process is replaced at its pipe."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from core.engine.requests import Request
from core.errors import Problem, StageFailed
from core.events import (
    AnyEvent,
    FinishReason,
    RequestDone,
    TokenEvent,
    TrustChanged,
)
from core.models.text.tokenizer import Tokens
from core.node.answers.answers import Answers
from core.node.answers.model_tokenizer import ModelTokenizer
from core.node.answers.token_log import AnswerRecord, TokenLog, Written, read_token_log
from core.node.base.bus import Bus
from core.node.base.journal import Journal
from core.node.peers.worker_state import WorkerState
from core.pipe_messages import LENGTH, pack
from core.requests.answers import AnswerId, ChatRequest, Message
from core.sampling_options import Sampling
from core.settings import Home
from core.worker.messages import (
    AnswerDone,
    Cancel,
    Command,
    Prefilled,
    Report,
    Token,
    unpack_command,
    unpack_report,
)
from tests.support.contexts import context_of
from tests.support.macs import mac
from tests.support.maker import make_model
from tests.support.plans import plan_of
from tests.support.tasks import tasks_of
from tests.support.tokenizers import TokenizerHere, read_here
from tests.support.waiting import until

ROWS = 2
TEXT = "Zwei Flüsse, 日本, and a 🐢 end of it."
LOST = StageFailed("mini is on fire.", "Put it out.").problem


class RecordingBus(Bus):
    """Keeps every published event."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[AnyEvent] = []

    def publish(self, event: AnyEvent) -> None:
        super().publish(event)
        self.events.append(event)


class Pipe:
    """Pipe to the worker: keeps the commands that the node writes, decoded as the worker decodes them."""

    def __init__(self) -> None:
        self.sent: list[Command] = []

    def send(self, command: Command) -> None:
        self.sent.append(unpack_command(pack(command)[LENGTH.size :]))


class AnswersHarness:
    """A node's answers with a plan of two Macs that is ready."""

    def __init__(self, folder: Path, model: Path, read: Callable[[Path], Awaitable[TokenizerHere]] = read_here) -> None:
        self.folder, self.model = folder, model
        self.again: AnswersHarness | None = None
        self.before: dict[str, int] = {}  # tokens written before the restart
        self.bus, self.pipe = RecordingBus(), Pipe()
        journal = Journal(folder / "log", "me", self.bus)
        tasks = tasks_of(journal)
        config = {"home": Home(folder)}
        self.node = context_of(identity=mac(0), config=config, bus=self.bus, journal=journal, tasks=tasks)
        self.secret = self.node.identity.secret("token log")
        self.worker = WorkerState()
        tokenizer: Any = ModelTokenizer(read)
        self.answers = Answers(self.node, self.worker, self.pipe, tokenizer)  # type: ignore[arg-type]
        self.bus.publish(TrustChanged(level="paired"))

    async def load(self, context: int = 500) -> AnswersHarness:
        self.worker.led, self.worker.is_ready = replace(plan_of(2), context=context, rows=ROWS), True
        await self.answers.use(self.model)
        return self

    async def ask(self, text: str = "hello", sampling: Sampling | None = None, **more: object) -> Request:
        """Ask for an answer; returns the request that the worker received."""
        message = Message(role="user", content=text)
        request = ChatRequest(messages=(message,), raw=True, sampling=sampling or Sampling(), **more)  # type: ignore[arg-type]
        accepted = await self.answers.ask(request)
        asked = self.handed(accepted.request_id)
        assert accepted.prompt_tokens == len(asked.tokens)
        return asked

    @property
    def asked(self) -> list[Request]:
        return [command for command in self.pipe.sent if isinstance(command, Request)]

    def handed(self, request_id: str) -> Request:
        """The newest request that the worker received for this answer."""
        return [one for one in self.asked if one.request_id == request_id][-1]

    @property
    def cancelled(self) -> list[str]:
        return [command.request_id for command in self.pipe.sent if isinstance(command, Cancel)]

    def says(self, report: Report) -> None:
        told = unpack_report(pack(report)[LENGTH.size :])
        assert isinstance(told, Token | Prefilled | AnswerDone)
        self.answers.handle_report(told)

    def writes(self, request: Request, tokens: Sequence[int]) -> None:
        """The worker sends the next tokens of the answer."""
        for index, token in enumerate(tokens, len(self.told(request)) + self.before.get(request.request_id, 0)):
            self.says(Token(request_id=request.request_id, index=index, token=token))

    def ends(self, request: Request, reason: FinishReason = "length", problem: Problem | None = None) -> None:
        self.says(
            AnswerDone(
                request_id=request.request_id,
                finish_reason=reason,
                prompt_tokens=len(request.tokens),
                tokens=5,
                ttft_s=0.25,
                decode_tokens_per_s=2.0,
                problem=problem,
            )
        )

    def told(self, request: Request) -> list[TokenEvent]:
        events = [e for e in self.bus.events if isinstance(e, TokenEvent)]
        return [e for e in events if e.request_id == request.request_id]

    async def done(self, request: Request) -> RequestDone:
        """Wait until the log is on disk; returns the event that ends the request."""
        await until(lambda: bool(self._ends_of(request)))
        (done,) = self._ends_of(request)
        return done

    async def shown(self, request: Request) -> str:
        return "".join(event.text for event in self.told(request)) + (await self.done(request)).text

    def _ends_of(self, request: Request) -> list[RequestDone]:
        return [e for e in self.bus.events if isinstance(e, RequestDone) and e.request_id == request.request_id]

    def logged(self, request: Request) -> tuple[AnswerRecord, list[int]]:
        return self.log_of(request)[:2]

    def log_of(self, request: Request) -> Written:
        (path,) = self.node.home.tokens.glob(f"{request.request_id}*.mct")  # its name says when it has ended
        return read_token_log(path, self.secret)

    def crashes(self) -> AnswersHarness:
        """Restart the node on the same folder, with running answers left as they are."""
        self.again = AnswersHarness(self.folder, self.model)
        self.again.before = {name: written for name, (_, written) in self.answers.under_way.items()}
        for running in self.answers._running.values():
            if isinstance(running.log, TokenLog):
                running.log._file.close()
        self.answers._running.clear()
        return self.again

    async def ends_all(self) -> None:
        self.answers.stop_all(LOST)
        await self.answers.close()
        if self.again:
            await self.again.ends_all()

    async def goes_on(self, request_id: str = "") -> Request:
        return self.handed((await self.answers.go_on(AnswerId(request_id=request_id))).request_id)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("model")
    make_model(made, "llama", layers=1)
    return made


@pytest.fixture(scope="module")
def tokens(model: Path) -> Tokens:
    return Tokens.load(model)


def ids_of(tokens: Tokens, text: str) -> list[int]:
    return tokens.encode([Message(role="user", content=text)], raw=True)
