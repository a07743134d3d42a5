import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from core.errors import OtherVersion, PairingError
from core.events import PairingChanged
from core.node.pairing import pairing_session
from core.node.pairing.pairing_session import PairingSession, offer_pairing
from core.node.pairing.pairing_window import PairingServer, serve_pairing
from core.node.peers.versions import own_greeting
from core.trust.pairing_attempts import PairingAttempts
from core.trust.roster.store import RosterStore
from tests.support.macs import bundle, chain, mac
from tests.support.waiting import until

HOST = "127.0.0.1"


async def right(view: PairingChanged) -> str:
    return f"{view.digits[:3]} {view.digits[3:]}"


async def wrong(view: PairingChanged) -> str:
    return f"{(int(view.digits) + 1) % 1_000_000:06d}"


async def never(_: PairingChanged) -> str:
    await asyncio.Event().wait()
    return ""


@pytest.fixture
def stores(tmp_path: Path) -> list[RosterStore]:
    return [RosterStore(tmp_path / str(n)) for n in range(4)]


@contextlib.asynccontextmanager
async def window(number: int, store: RosterStore, confirm: Any = right, **limits: Any) -> AsyncIterator[PairingServer]:
    attempts = limits.pop("attempts", None)
    limits = {"window_s": 5.0, "apart_s": 0.0, **limits}
    server = await serve_pairing(HOST, 0, session(number, store, confirm, attempts), **limits)
    try:
        yield server
    finally:
        server.close()
        await server.wait_closed()


def offer(
    server: PairingServer,
    number: int,
    store: RosterStore,
    confirm: Callable[[PairingChanged], Awaitable[str]] = right,
    attempts: PairingAttempts | None = None,
) -> Awaitable[Any]:
    return offer_pairing(HOST, server.port, session(number, store, confirm, attempts))


def session(number: int, store: RosterStore, confirm: Any, attempts: PairingAttempts | None = None) -> PairingSession:
    return PairingSession(mac(number), f"mac{number}", store, attempts or attempts_of(store), confirm)


def attempts_of(store: RosterStore) -> PairingAttempts:
    """A limit without earlier attempts."""
    (path := store._folder.parent / f"{store._folder.name}.json").unlink(missing_ok=True)
    return PairingAttempts(path)


def files(store: RosterStore) -> list[str]:
    return [p.name for p in store._folder.iterdir()]


async def test_two_fresh_macs_found_a_cluster(stores: list[RosterStore]) -> None:
    async with window(1, stores[1]) as server:
        theirs, mine = await asyncio.gather(offer(server, 0, stores[0]), server.wait())
    assert (theirs.device_id, theirs.name, theirs.is_admin) == (mac(1).device_id, "mac1", False)
    assert (mine.device_id, mine.name, mine.is_admin) == (mac(0).device_id, "mac0", True)
    assert stores[0].cluster() == stores[1].cluster()
    assert set(stores[0].cluster().certificates) == {mac(0).device_id, mac(1).device_id}
    assert stores[0].current
    assert stores[0].current.epoch == 2


async def test_the_admin_admits_a_third_mac_whoever_dials(stores: list[RosterStore]) -> None:
    async with window(1, stores[1]) as server:
        await asyncio.gather(offer(server, 0, stores[0]), server.wait())
    async with window(0, stores[0]) as server:
        await asyncio.gather(offer(server, 2, stores[2]), server.wait())
    async with window(3, stores[3]) as server:
        await asyncio.gather(offer(server, 0, stores[0]), server.wait())
    assert stores[3].cluster() == stores[0].cluster()
    assert len(stores[0].cluster().roster.members) == len(stores[0].cluster().certificates) == 4
    assert stores[2].current == RosterStore(stores[2]._folder).current


async def test_a_long_history_travels_in_pieces(stores: list[RosterStore], monkeypatch: pytest.MonkeyPatch) -> None:
    stores[0].adopt(bundle(chain(1), mac(0).certificate_der))
    stores[0].adopt(bundle(chain(6)[1:], *(mac(n).certificate_der for n in range(1, 6))))
    monkeypatch.setattr("core.trust.roster.store.MAX_CONTROL_BODY", len(stores[0].bundle()) - 400)
    async with window(7, stores[1]) as server:
        await asyncio.gather(offer(server, 0, stores[0]), server.wait())
    assert stores[1].current == stores[0].current
    assert stores[1].current
    assert stores[1].current.epoch == 7


async def test_a_member_that_lost_its_roster_gets_it_again_without_a_new_epoch(stores: list[RosterStore]) -> None:
    stores[0].adopt(bundle(chain(2), mac(0).certificate_der, mac(1).certificate_der))
    async with window(1, stores[1]) as server:
        await asyncio.gather(offer(server, 0, stores[0]), server.wait())
    assert stores[1].cluster() == stores[0].cluster()
    assert stores[0].current == chain(2)[-1]


@pytest.mark.parametrize(("mine", "theirs"), [(right, wrong), (wrong, right), (wrong, never), (never, wrong)])
async def test_wrong_digits_abort_both_sides_and_nothing_is_kept(
    stores: list[RosterStore], mine: Any, theirs: Any
) -> None:
    async with window(1, stores[1], theirs) as server:
        with pytest.raises(PairingError):
            await offer(server, 0, stores[0], mine)
        server.close()
        with pytest.raises(PairingError):
            await server.wait()
    assert files(stores[0]) == files(stores[1]) == []


async def test_a_no_on_one_screen_takes_the_question_off_the_other(stores: list[RosterStore]) -> None:
    gone = asyncio.Event()

    async def asked(_: PairingChanged) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()
        return ""

    async with window(1, stores[1], asked) as server:
        with pytest.raises(PairingError, match="digits"):
            await offer(server, 0, stores[0], wrong)
        await asyncio.wait_for(gone.wait(), 2)


async def test_two_clusters_are_not_merged(stores: list[RosterStore]) -> None:
    stores[0].adopt(bundle(chain(1), mac(0).certificate_der))
    async with window(2, stores[2]) as server:
        await asyncio.gather(offer(server, 1, stores[1]), server.wait())
    async with window(2, stores[2]) as server:
        with pytest.raises(PairingError, match="different clusters"):
            await offer(server, 0, stores[0])
    assert stores[0].current == chain(1)[0]


async def test_a_member_who_is_no_admin_admits_nobody(stores: list[RosterStore]) -> None:
    stores[1].adopt(bundle(chain(2), mac(0).certificate_der, mac(1).certificate_der))
    async with window(1, stores[1]) as server:
        with pytest.raises(PairingError, match="not an admin"):
            await offer(server, 2, stores[2])
    assert files(stores[2]) == []


async def test_nobody_listens(stores: list[RosterStore]) -> None:
    with pytest.raises(PairingError, match="cannot be reached"):
        await offer_pairing(HOST, 1, session(0, stores[0], right))


async def test_the_window_closes_by_itself(stores: list[RosterStore]) -> None:
    async with window(1, stores[1], window_s=0.05) as server:
        with pytest.raises(PairingError, match="did not connect"):
            await asyncio.wait_for(server.wait(), 2)
        with pytest.raises(PairingError, match="cannot be reached"):
            await offer(server, 0, stores[0])


async def test_a_person_who_never_types_is_not_waited_for_longer_than_the_window(stores: list[RosterStore]) -> None:
    async with window(1, stores[1], never, window_s=0.3) as server:
        with pytest.raises(PairingError):
            await asyncio.wait_for(offer(server, 0, stores[0]), 3)


async def test_a_silent_peer_times_out(stores: list[RosterStore], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairing_session.PairingConnection.read, "__defaults__", (0.1,))
    async with window(1, stores[1]) as server:
        reader, writer = await asyncio.open_connection(HOST, server.port)
        assert await asyncio.wait_for(reader.read(), 2) == b""
        writer.close()


async def test_junk_costs_no_attempt(stores: list[RosterStore]) -> None:
    async with window(1, stores[1]) as server:
        for _ in range(5):
            reader, writer = await asyncio.open_connection(HOST, server.port)
            writer.write(b"GET / HTTP/1.1\r\nHost: somewhere over here\r\n\r\n")
            assert await asyncio.wait_for(reader.read(), 2) == b""
            writer.close()
        await asyncio.gather(offer(server, 0, stores[0]), server.wait())


async def test_two_macs_without_a_common_version_say_so_before_anybody_types_digits(stores: list[RosterStore]) -> None:
    async def asked(_: PairingChanged) -> str:
        pytest.fail("digits were asked for")

    later = msgspec.structs.replace(own_greeting(), version="0.3.0", wire=(2, 3))
    here = session(0, stores[0], asked)
    async with window(1, stores[1], asked) as server:
        server._session = dataclasses.replace(server._session, greeting=later)
        with pytest.raises(
            OtherVersion, match=r"mac1 has macluster 0\.3\.0, this Mac macluster 0\.1\.0.*On this Mac: "
        ):
            await offer_pairing(HOST, server.port, here)
        with pytest.raises(PairingError, match=r"mac0 has macluster 0\.1\.0.*, this Mac macluster 0\.3\.0.*On mac0: "):
            await server.wait()
    assert [files(store) for store in stores[:2]] == [[], []]


async def commit_only(server: PairingServer) -> bytes:
    """Attack that wants to see P2, and closes if its digits don't match those of the other victim."""
    reader, writer = await asyncio.open_connection(HOST, server.port)
    writer.write(b"MCP1" + bytes(32))
    try:
        revealed = await asyncio.wait_for(reader.read(97), 2)
    finally:
        writer.close()
    if revealed:
        await until(lambda: not server.is_busy)  # it sees that the client is gone
    return revealed


async def test_an_attacker_cannot_look_at_more_digits_than_there_are_attempts(stores: list[RosterStore]) -> None:
    async with window(1, stores[1]) as server:
        assert [len(await commit_only(server)) for _ in range(3)] == [97] * 3
        with pytest.raises(PairingError):
            await server.wait()
        with pytest.raises(PairingError, match="cannot be reached"):
            await offer(server, 0, stores[0])


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.promise("P40")
async def test_neither_new_windows_nor_new_knocks_nor_a_restart_give_more_looks(
    stores: list[RosterStore], tmp_path: Path, restarts: bool
) -> None:
    path, looks = tmp_path / "attempts.json", 0
    attempts = PairingAttempts(path)

    async def look(_: PairingChanged) -> str:
        nonlocal looks
        looks += 1
        return "000000"

    for turn in range(7):
        attempts = PairingAttempts(path) if restarts else attempts
        knocks = bool(turn % 2)
        async with window(
            1, stores[1], never if knocks else look, **({} if knocks else {"attempts": attempts})
        ) as server:
            with contextlib.suppress(PairingError):
                await offer(server, 0, stores[0], look if knocks else wrong, attempts if knocks else None)
    assert looks == 3


async def test_attempts_are_kept_apart(stores: list[RosterStore]) -> None:
    async with window(1, stores[1], apart_s=3.0) as server:
        assert len(await commit_only(server)) == 97
        with pytest.raises(PairingError, match="not ready"):
            await offer(server, 0, stores[0])


async def test_a_second_attacker_is_turned_away_while_one_mac_is_being_paired(stores: list[RosterStore]) -> None:
    turned_away = []

    async def meanwhile(view: PairingChanged) -> str:
        turned_away.append(await commit_only(server))
        return view.digits

    async with window(1, stores[1]) as server:
        await asyncio.gather(offer(server, 0, stores[0], meanwhile), server.wait())
    assert turned_away == [b""]
    assert stores[0].current == stores[1].current


@pytest.mark.promise("P2")
async def test_a_man_in_the_middle_shows_different_digits_and_gets_nothing(stores: list[RosterStore]) -> None:
    """The attacker pairs with each side in the other's name; people type the digits of the other real screen."""
    shown: dict[str, str] = {}
    both = asyncio.Event()

    def screen(me: str, other: str) -> Any:
        async def confirm(view: PairingChanged) -> str:
            shown[me] = view.digits
            if len(shown) == 2:
                both.set()
            await both.wait()
            return shown[other]

        return confirm

    async with window(1, stores[1], screen("b", "a")) as victim_b, window(2, stores[2]) as mitm:
        results = await asyncio.gather(
            offer(mitm, 0, stores[0], screen("a", "b")), offer(victim_b, 3, stores[3]), return_exceptions=True
        )
    assert [type(r) for r in results] == [PairingError, PairingError]
    assert shown["a"] != shown["b"]
    assert all(files(store) == [] for store in stores)


async def test_an_oversized_note_is_refused_before_it_is_read(
    stores: list[RosterStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairing_session, "MAX_NOTE", 10)
    async with window(1, stores[1]) as server:
        with pytest.raises(PairingError):
            await offer(server, 0, stores[0])
    assert files(stores[0]) == files(stores[1]) == []
