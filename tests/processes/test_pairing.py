"""Two people pair two Macs: real nodes on loopback; each person types the digits of the other screen."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
import pytest_asyncio

from core.errors import PairingError, UsageError
from core.events import PairingChanged
from core.node.pairing.pairing_session import PairingSession, offer_pairing
from core.pairing_code import CODE_DIGITS
from core.requests.trust import Address, Digits, PairingOffer, PairWith
from core.settings import Home
from core.trust.pairing_attempts import PairingAttempts
from core.trust.roster.store import RosterStore
from tests.support.macs import mac
from tests.support.nodes import HOST, running_node
from tui.cli.watch import Watch

WAIT_S = 120.0


class Person(NamedTuple):
    """A person in front of a Mac."""

    home: Home
    watch: Watch

    @property
    def device_id(self) -> str:
        return next(p.device_id for p in self.watch.now.peers if p.is_self)

    @property
    def kept(self) -> list[str]:
        return sorted(p.name for p in self.home.rosters.iterdir())

    async def sees(self, state: str, mark: int = 0) -> PairingChanged:
        def steps() -> list[PairingChanged]:
            return [e for e in self.watch.seen[mark:] if isinstance(e, PairingChanged) and e.state == state]

        await self.watch.until(lambda _: bool(steps()), WAIT_S, f"{self.home.root.name}: {state}")
        return steps()[-1]

    async def types(self, digits: str) -> None:
        await self.watch.client.type_digits(Digits(digits=digits))


@asynccontextmanager
async def person(folder: Path, name: str, *options: str) -> AsyncIterator[Person]:
    home = Home(folder / name)
    home.root.mkdir(mode=0o700)
    async with running_node(home, *options) as watch:
        yield Person(home, watch)


class Two(NamedTuple):
    """Two people in front of their Macs, without multicast."""

    one: Person
    two: Person

    def meet(self) -> Two:
        """Forget what an earlier test saw."""
        for who in self:
            who.watch.seen.clear()
            assert not any(p.trust == "paired" and not p.is_self for p in who.watch.now.peers)
        return self


@asynccontextmanager
async def two_people(folder: Path) -> AsyncIterator[Two]:
    async with person(folder, "studio", "--no-multicast") as one, person(folder, "mini", "--no-multicast") as two:
        yield Two(one, two)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def unlucky(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Two]:
    """For three tests that fail to pair; a Mac allows no more in two minutes."""
    async with two_people(tmp_path_factory.mktemp("unlucky")) as both:
        yield both


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lucky(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Two]:
    """For a test that fails to pair, and one that pairs."""
    async with two_people(tmp_path_factory.mktemp("lucky")) as both:
        yield both


def other_digits(digits: str) -> str:
    return f"{(int(digits) + 1) % 10**CODE_DIGITS:0{CODE_DIGITS}d}"


@pytest.mark.slow
@pytest.mark.usefixtures("bonjour")
async def test_who_chose_each_other_meet_and_wrong_digits_leave_nothing(tmp_path: Path) -> None:
    async with person(tmp_path, "studio") as one, person(tmp_path, "mini") as two:
        ids = {one.device_id, two.device_id}
        for who in (one, two):
            await who.watch.until(lambda w: ids <= {p.device_id for p in w.now.peers}, WAIT_S, "Bonjour")
        for first, second in ((one, two), (two, one)):
            marks = len(first.watch.seen), len(second.watch.seen)
            await first.watch.client.pair_with(PairWith(device_id=second.device_id))
            await first.watch.until(lambda w: bool(w.now.pairing and w.now.pairing.address), WAIT_S, "The window")
            await second.watch.client.pair_with(PairWith(device_id=first.device_id))
            shown = await first.sees("compare", marks[0]), await second.sees("compare", marks[1])
            assert [s.device_id for s in shown] == [second.device_id, first.device_id]
            assert all(s.fingerprint for s in shown)
            await first.types(other_digits(shown[1].digits))
            failed = await first.sees("failed", marks[0]), await second.sees("failed", marks[1])
            assert "digits" in (failed[0].problem or PairingError("")).what
            assert all(f.digits == "" for f in failed)
            assert one.kept == two.kept == []
        marks = len(one.watch.seen), len(two.watch.seen)
        for first, second in ((one, two), (two, one)):  # both at once: neither can know of the other's window yet
            await first.watch.client.pair_with(PairWith(device_id=second.device_id))
        shown = await one.sees("compare", marks[0]), await two.sees("compare", marks[1])
        await one.types(shown[1].digits)
        await two.types(shown[0].digits)
        for who, mark in zip((one, two), marks, strict=True):
            await who.sees("paired", mark)
            await who.watch.until(
                lambda w: ids <= {p.device_id for p in w.now.peers if p.state == "connected" and p.trust == "paired"},
                WAIT_S,
                "The link",
            )
        assert one.kept == two.kept
        assert "00000002.roster" in one.kept


async def test_a_window_for_one_mac_shows_no_digits_to_another(tmp_path: Path) -> None:
    chosen, stranger = mac(5), mac(6)
    asked: list[PairingChanged] = []

    async def confirm(view: PairingChanged) -> str:
        asked.append(view)
        return view.digits

    async def knock(who: int, port: int) -> None:
        store = RosterStore(tmp_path / f"store{who}")
        attempts = PairingAttempts(tmp_path / f"attempts{who}")
        await offer_pairing(HOST, port, PairingSession(mac(who), "mini", store, attempts, confirm))

    async with person(tmp_path, "studio", "--no-multicast") as one:
        await one.watch.client.know(Address(device_id=chosen.text_id, host=HOST, port=1))
        await one.watch.client.pair_with(PairWith(device_id=chosen.text_id))
        await one.watch.until(lambda w: bool(w.now.pairing and w.now.pairing.address), WAIT_S, "The window")
        waiting = one.watch.now.pairing
        assert waiting
        port = int(waiting.address.rpartition(":")[2])
        with pytest.raises(PairingError):
            await asyncio.wait_for(knock(6, port), WAIT_S)
        assert one.watch.now.pairing == waiting, "the person was asked nothing"
        assert [v.device_id for v in asked] in ([], [one.device_id])
        assert stranger.text_id not in {p.device_id for p in one.watch.now.peers}
        await one.watch.client.stop_pairing()
        await one.sees("stopped")
        with pytest.raises(OSError, match="refused"):
            socket.create_connection((HOST, port)).close()
        assert one.kept == []


@pytest.mark.asyncio(loop_scope="module")
async def test_an_address_that_a_person_gives_takes_the_place_of_waiting(lucky: Two) -> None:
    one, two = lucky.meet()
    window = await two.watch.client.open_pairing()
    await one.watch.client.open_pairing()
    mark = len(one.watch.seen)
    await one.watch.client.offer_pairing(PairingOffer(host=HOST, port=window.port))
    shown = await one.sees("compare", mark), await two.sees("compare")
    await two.watch.client.stop_pairing()
    failed = await one.sees("failed", mark)
    assert "somebody ended it there" in (failed.problem or PairingError("")).what
    assert shown[0].peer == "mini"
    assert one.kept == two.kept == []
    with pytest.raises(UsageError):
        await one.types(shown[1].digits)
    with pytest.raises(UsageError, match="was seen"):
        await one.watch.client.pair_with(PairWith(device_id=mac(3).text_id))


@asynccontextmanager
async def renaming(port: int, old: bytes, new: bytes) -> AsyncIterator[int]:
    """A relay between two Macs that replaces one name; yields its port."""

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data.replace(old, new))
        writer.close()

    async def call(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(HOST, port)
        try:
            with suppress(ConnectionError):
                await asyncio.gather(pass_on(reader, back), pass_on(there, writer))
        finally:
            back.transport.abort()
            writer.transport.abort()

    async with await asyncio.start_server(call, HOST, 0) as server:
        yield int(server.sockets[0].getsockname()[1])


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("old", "new"), [(b"mini", b"maxi"), (b"studio", b"studi0")])
async def test_a_name_changed_in_flight_ends_it_on_both_sides(unlucky: Two, old: bytes, new: bytes) -> None:
    one, two = unlucky.meet()
    window = await two.watch.client.open_pairing()
    async with renaming(window.port, old, new) as port:
        await one.watch.client.offer_pairing(PairingOffer(host=HOST, port=port))
        if old == b"mini":  # the answer: only the digits show it
            shown = await one.sees("compare"), await two.sees("compare")
            assert shown[0].peer == "maxi"
            assert shown[0].digits != shown[1].digits
            await one.types(shown[1].digits)  # the first refusal ends it for both
            await two.sees("failed")
        await one.sees("failed")
        await two.watch.client.stop_pairing()  # a changed commitment costs an attempt, not the window
    assert not [e for e in two.watch.seen if isinstance(e, PairingChanged) and e.state == "paired"]
    assert one.kept == two.kept == []


class Command:
    """`macluster pair`, with its standard input held by the test."""

    def __init__(self, home: Home, *words: str) -> None:
        command = [sys.executable, "-m", "tui.cli.main", "--home", str(home.root), "pair", *words, "--json"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    async def says(self, state: str) -> PairingChanged:
        assert self.process.stdout
        while line := await asyncio.to_thread(self.process.stdout.readline):
            step = msgspec.json.decode(line, type=PairingChanged)
            if step.state == state:
                return step
        raise AssertionError(f"{state!r} never came: {await self.ended()}")

    def types(self, line: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    async def ended(self) -> tuple[int, str]:
        _, complaint = await asyncio.to_thread(self.process.communicate, timeout=WAIT_S)
        return self.process.returncode, complaint

    def kill(self) -> None:
        with self.process:
            self.process.kill()


@pytest.fixture
def command() -> Iterator[Callable[..., Command]]:
    """Starts commands; all end with the test."""
    with ExitStack() as stack:

        def begin(home: Home, *words: str) -> Command:
            begun = Command(home, *words)
            stack.callback(begun.kill)
            return begun

        yield begin


async def window_of(command: Command) -> str:
    while not (step := await command.says("waiting")).address:
        pass
    return step.address


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.slow
async def test_the_command_pairs_by_standard_input_and_says_how_it_ended(
    lucky: Two, command: Callable[..., Command]
) -> None:
    one, two = lucky.meet()
    for right in (False, True):
        waiting = command(one.home)
        knocking = command(two.home, await window_of(waiting))
        shown = await waiting.says("compare"), await knocking.says("compare")
        waiting.types("12 34")  # not six digits: asked for again
        waiting.types(shown[1].digits)
        knocking.types(shown[0].digits if right else other_digits(shown[0].digits))
        ends = await waiting.ended(), await knocking.ended()
        assert [status for status, _ in ends] == ([0, 0] if right else [1, 1]), ends
        assert "Six digits, please" in ends[0][1]
        assert ("somebody ended it there" in ends[0][1]) is not right
        assert (one.kept == two.kept == []) is not right


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.slow
async def test_ctrl_c_and_the_end_of_input_stop_it(unlucky: Two, command: Callable[..., Command]) -> None:
    one, two = unlucky.meet()
    waiting = command(one.home)
    address = await window_of(waiting)
    waiting.process.send_signal(signal.SIGINT)
    assert (await waiting.ended())[0] == 130
    await one.sees("stopped")
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((HOST, int(address.rpartition(":")[2]))).close()
    assert (await command(one.home, "nobody").ended())[0] == 2

    waiting = command(one.home)
    knocking = command(two.home, await window_of(waiting))
    await knocking.says("compare")
    assert knocking.process.stdin
    knocking.process.stdin.close()
    knocking.process.stdin = None
    status, complaint = await knocking.ended()
    assert (status, "ended before the six digits" in complaint) == (2, True)
    assert (await waiting.ended())[0] == 1
    assert one.kept == two.kept == []
