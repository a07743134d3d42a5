"""Separated admins: any signed changes, over any number of epochs, arrive in any order at the others."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import RosterError, RosterFork
from core.trust.private_files import write_private
from core.trust.roster.bundle import decode_bundle
from core.trust.roster.changes import add, affirm, demote, promote, rename, revoke
from core.trust.roster.forks import MAX_DEPTH, MAX_RIVALS
from core.trust.roster.format import Roster, decode
from core.trust.roster.store import RosterStore
from tests.support.macs import bundle, chain, mac, member_of
from tests.support.search import SEARCH

ADMINS, MACS, CANDIDATE = 3, 5, 5
VICTIM = mac(4).device_id


def base() -> tuple[Roster, ...]:
    """Five Macs; the first three are admins."""
    rosters = list(chain(MACS))
    for number in range(1, ADMINS):
        rosters.append(promote(rosters[-1], mac(0), mac(number).device_id))
    return tuple(rosters)


BASE = base()
COMMON = BASE[-1].epoch


class Home:
    """A Mac's rosters, and all signed rosters that it has heard of."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder, self.number = folder / str(number), number
        self.store = RosterStore(self.folder)
        self.store.adopt(bundle(BASE, *(mac(n).certificate_der for n in range(MACS))))
        self.heard = set[bytes]()
        self.first: Roster | None = None

    @property
    def current(self) -> Roster:
        assert self.store.current
        return self.store.current

    def hear(self, other: Home) -> None:
        """Exchange missing rosters as a control link does, in both directions, while both may link."""
        if not may_link(self, other):
            return
        told = decode_bundle(self.store.bundle(COMMON + 99))
        sent = other.store.bundle(other.store.shared_epoch([told.stand, *told.points]))
        self.take(sent)

    def take(self, sent: bytes) -> None:
        """Adopt a bundle, or learn of a fork."""
        self.heard |= {decode(roster).hash for roster in decode_bundle(sent).rosters}
        with suppress(RosterFork):
            self.store.adopt(sent)
        if self.first is None:
            self.first = next(iter(self.store.history[COMMON:]), None)

    def start_anew(self) -> None:
        self.store = RosterStore(self.folder)


def may_link(one: Home, other: Home) -> bool:
    """Whether both sides allow the link, as `Mesh` judges it."""
    pairs = ((one, other), (other, one))
    ids = [(here.store, mac(there.number).device_id) for here, there in pairs]
    return all(store.lists(device_id) and not store.is_revoked(device_id) for store, device_id in ids)


# ---- the regression


def apart(*signers: tuple[int, list[Callable[[Roster, int], Roster]]]) -> list[tuple[Roster, ...]]:
    sides = []
    for number, changes in signers:
        rosters = [BASE[-1]]
        for change in changes:
            rosters.append(change(rosters[-1], number))
        sides.append(tuple(rosters[1:]))
    return sides


def named(name: str) -> Callable[[Roster, int], Roster]:
    return lambda roster, by: rename(roster, mac(by), mac(3).device_id, f"{name} {roster.epoch}")


def without(number: int) -> Callable[[Roster, int], Roster]:
    return lambda roster, by: revoke(roster, mac(by), mac(number).device_id)


def affirmed(roster: Roster, by: int) -> Roster:
    return affirm(roster, mac(by))


def home_at(folder: Path, number: int, side: tuple[Roster, ...]) -> Home:
    home = Home(folder, number)
    home.store.adopt(bundle(side))
    return home


@pytest.mark.promise("P14")
def test_two_admins_apart_for_two_epochs_block_until_people_decide_and_a_mac_that_one_revoked_links_with_none(
    tmp_path: Path,
) -> None:
    left, right = apart((0, [without(4), named("left")]), (1, [named("right"), named("right")]))
    one, other = home_at(tmp_path, 0, left), home_at(tmp_path, 1, right)
    for _ in range(3):
        one.hear(other)
        other.hear(one)
    for home, ours, theirs in ((one, left, right), (other, right, left)):
        for _ in range(2):
            assert home.store.forked
            assert home.store.forked.sides == (ours, theirs)
            assert {home.store.level(mac(n).device_id) for n in range(MACS)} == {"blocked"}
            assert home.store.is_revoked(VICTIM)
            assert home.current == ours[-1]
            home.start_anew()
    other.store.resolve(left[-1].hash)
    one.store.resolve(left[-1].hash)
    assert other.current == left[-1]
    one.store.advance(affirm(one.current, mac(0)))
    other.hear(one)
    one.hear(other)
    for home in (one, other):
        home.start_anew()
        assert home.store.forked is None
        assert home.current.epoch == COMMON + 3
        assert home.store.level(VICTIM) == "blocked"
        with pytest.raises(RosterFork):
            home.store.adopt(bundle(right))
        assert home.store.forked is None


@pytest.mark.parametrize("longer", [1, 2, 9])
def test_a_longer_history_does_not_win_by_being_longer(tmp_path: Path, longer: int) -> None:
    left, right = apart((0, [named("left")]), (1, [named("right")] * longer))
    home = home_at(tmp_path, 3, left)
    with pytest.raises(RosterFork):
        home.store.adopt(bundle(right))
    with pytest.raises(RosterError):
        home.store.adopt(bundle(tuple(apart((0, [named("left")] * 2))[0][1:])))
    assert home.current == left[-1]
    assert home.store.forked


def test_a_shorter_history_can_be_chosen_and_stands_after_a_restart(tmp_path: Path) -> None:
    left, right = apart((0, [named("left")] * 4), (1, [without(4)]))
    home = home_at(tmp_path, 3, left)
    with pytest.raises(RosterFork):
        home.store.adopt(bundle(right))
    assert home.store.resolve(right[0].hash) == right[0]
    home.start_anew()
    assert (home.current, home.store.forked, len(home.store.history)) == (right[0], None, COMMON + 1)
    with pytest.raises(RosterFork, match="decided against"):
        home.store.adopt(bundle(left))
    assert home.store.adopt(bundle((affirm(right[0], mac(1)),)))


@pytest.mark.parametrize("calls", range(1, 9))
def test_a_change_to_another_history_that_was_cut_off_ends_at_one_of_the_two(
    tmp_path: Path, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = apart((0, [named("left")] * 3), (1, [named("right")] * 2))
    home, done = home_at(tmp_path, 3, left), 0
    with pytest.raises(RosterFork):
        home.store.adopt(bundle(right))
    unlink = Path.unlink

    class Cut(Exception):
        """The power cut."""

    def one_more() -> None:
        nonlocal done
        done += 1
        if done > calls:
            raise Cut

    def cut_write(*args: object) -> None:
        one_more()
        write_private(*args)  # type: ignore[arg-type]

    def cut_unlink(path: Path, missing_ok: bool = False) -> None:
        if path.suffix != ".tmp":
            one_more()
        unlink(path, missing_ok)

    monkeypatch.setattr("core.trust.roster.store.write_private", cut_write)
    monkeypatch.setattr(Path, "unlink", cut_unlink)
    with suppress(Cut):
        home.store.resolve(right[-1].hash)
    monkeypatch.undo()
    home.start_anew()
    if home.current == left[-1]:
        assert home.store.forked
        home.store.resolve(right[-1].hash)
    assert (home.current, home.store.forked) == (right[-1], None)


def test_people_who_decided_differently_are_asked_again_and_can_agree(tmp_path: Path) -> None:
    left, right = apart((0, [named("left")] * 2), (1, [named("right")] * 2))
    homes = [home_at(tmp_path, 0, left), home_at(tmp_path, 1, right)]

    def meet() -> None:
        for _ in range(3):
            homes[0].hear(homes[1])
            homes[1].hear(homes[0])

    meet()
    for home in homes:
        home.store.resolve(home.current.hash)
        home.store.advance(affirm(home.current, mac(home.number)))
    meet()
    wanted = homes[0].current
    for home in homes:
        assert home.store.forked
        home.store.resolve(wanted.hash)
    meet()
    assert [home.current for home in homes] == [wanted] * 2
    assert [home.store.forked for home in homes] == [None] * 2


@pytest.mark.promise("P14")
def test_an_affirmed_history_asks_no_more_about_an_old_one_unless_another_admin_affirms_that(tmp_path: Path) -> None:
    (left,) = apart((0, [named("left")] * 2 + [affirmed]))
    old, said = apart((1, [named("right")]), (1, [named("right"), affirmed]))
    home = home_at(tmp_path, 3, left)
    with pytest.raises(RosterFork, match="older than what an admin affirmed"):
        home.store.adopt(bundle(old))
    assert home.store.forked is None
    with pytest.raises(RosterFork):
        home.store.adopt(bundle(said))
    assert home.store.forked


@pytest.mark.parametrize("out", [without(1), lambda roster, by: demote(roster, mac(by), mac(1).device_id)])
def test_who_is_no_admin_any_more_blocks_once_and_after_that_decision_never_again(
    tmp_path: Path, out: Callable[[Roster, int], Roster]
) -> None:
    left, *rights = apart((0, [out] + [named("left")] * 3), *((1, [named(n), affirmed]) for n in ("a", "b", "c")))
    home = home_at(tmp_path, 3, left)
    with pytest.raises(RosterFork):
        home.store.adopt(bundle(rights[0]))
    assert home.store.forked
    home.store.resolve(left[-1].hash)
    home.store.adopt(bundle((affirm(left[-1], mac(0)),)))
    for right in rights:
        with pytest.raises(RosterFork):
            home.store.adopt(bundle(right))
        assert home.store.forked is None


# ---- kept rosters


@pytest.mark.promise("P14")
def test_of_an_admin_who_signs_without_end_little_is_kept_and_the_fork_can_still_be_decided(tmp_path: Path) -> None:
    (left,) = apart((0, [named("left")] * 2))
    home = home_at(tmp_path, 3, left)
    (long,) = apart((1, [named("long")] * (MAX_DEPTH + 20)))
    others = apart(*((1, [named(f"r{n}")]) for n in range(MAX_RIVALS + 3)))
    for side in (long, *others):
        with pytest.raises(RosterFork):
            home.store.adopt(bundle(side))
    for _ in range(2):
        assert home.store.forked
        assert len(home.store.forked.sides) == 1 + MAX_RIVALS
        assert len(list(home.folder.glob("*.rival"))) == MAX_DEPTH + MAX_RIVALS - 1
        home.start_anew()
    kept = home.store.forked
    assert kept
    home.store.resolve(next(side for side in kept.sides if len(side) == MAX_DEPTH)[-1].hash)
    home.store.adopt(bundle(long[MAX_DEPTH:]))
    assert home.current == long[-1]


def test_rosters_that_were_told_already_are_not_sent_again(tmp_path: Path) -> None:
    left, right = apart((0, [named("left")] * 7), (1, [named("right")] * 9))
    one, other = home_at(tmp_path, 0, left), home_at(tmp_path, 1, right)
    for _ in range(3):
        one.hear(other)
        other.hear(one)
    told = decode_bundle(one.store.bundle())
    assert len(decode_bundle(other.store.bundle(other.store.shared_epoch(told.points))).rosters) == 1


# ---- every order, every history

changes = st.lists(st.tuples(st.sampled_from("nnrap"), st.integers(0, MACS - 1)), min_size=1, max_size=4)
meetings = st.lists(
    st.tuples(st.integers(0, MACS - 1), st.integers(0, MACS - 1), st.booleans()), min_size=0, max_size=24
)


def signed_apart(number: int, wanted: list[tuple[str, int]]) -> tuple[Roster, ...]:
    """Rosters that this admin signs alone, as the rules allow; at least a new name."""
    rosters = [BASE[-1]]
    for kind, target in wanted:
        newest, me, who = rosters[-1], mac(number), mac(target).device_id
        with suppress(RosterError):
            match kind:
                case "r" if target != number:
                    rosters.append(revoke(newest, me, who))
                case "a":
                    rosters.append(add(newest, me, member_of(mac(CANDIDATE + number), newest.epoch + 1)))
                case "p":
                    rosters.append(promote(newest, me, who))
                case _:
                    rosters.append(rename(newest, me, who, f"{number} {newest.epoch}"))
    if len(rosters) == 1:
        rosters.append(rename(BASE[-1], mac(number), mac(number).device_id, f"{number}"))
    return tuple(rosters[1:])


def check_blocked(home: Home, sides: list[tuple[Roster, ...]]) -> None:
    """Check a Mac that heard of two sides: it is blocked, and links with no Mac that either side revokes.

    It takes only heard rosters into account, and neither side wins by itself.
    """
    known = [[r for r in side if r.hash in home.heard] for side in sides if side[0].hash in home.heard]
    fork, own = home.store.forked, tuple(home.store.history[COMMON:])
    assert (fork is not None) == (len(known) > 1)
    if fork:
        assert {home.store.level(m.device_id) for m in home.current.macs} == {"blocked"}
        assert all(home.store.is_revoked(r.device_id) for side in known for r in side[-1].revoked)
        assert fork.sides[0] == own
        assert {*fork.sides} == {tuple(side) for side in known}
    assert home.first in (None, *own[:1]), "none wins by itself"


@pytest.mark.slow
@settings(max_examples=10 * SEARCH, deadline=None)
@given(histories=st.lists(changes, min_size=2, max_size=ADMINS), order=meetings, wanted=st.permutations(range(ADMINS)))
@pytest.mark.promise("P14")
def test_whatever_was_signed_apart_and_however_it_travels_all_who_know_are_blocked_and_all_agree_in_the_end(
    histories: list[list[tuple[str, int]]], order: list[tuple[int, int, bool]], wanted: list[int]
) -> None:
    sides = [signed_apart(number, changes) for number, changes in enumerate(histories)]
    with tempfile.TemporaryDirectory(prefix="rivals-") as folder, patch("os.fsync"):
        homes = [Home(Path(folder), number) for number in range(MACS)]
        for home, side in zip(homes, sides, strict=False):
            home.take(bundle(side))
        for n, m, restarts in order:
            if n != m:
                homes[n].hear(homes[m])
                if restarts:
                    homes[n].start_anew()
            check_blocked(homes[n], sides)
        if any(not side[-1].member(mac(n).device_id) for side in sides for n in range(len(sides))):
            return  # Macs that revoked each other never exchange rosters again
        counts = next(sides[n] for n in wanted if n < len(sides))
        settle(homes, [sides[n][0] for n in wanted if n < len(sides)])
        assert {home.store.forked for home in homes} == {None}
        belong = [home for home in homes if counts[-1].member(mac(home.number).device_id)]
        assert {home.current.stand for home in belong} == {belong[0].current.stand}
        assert set(counts) <= set(belong[0].store.history)


def settle(homes: list[Home], wanted: list[Roster]) -> None:
    """Let all Macs meet; at each asking Mac a person decides for the first known side of `wanted`, and its admin
    vouches.
    """
    for _ in range(10):
        for home in homes:
            for other in homes:
                if other is not home:
                    home.hear(other)
        for home in homes:
            if fork := home.store.forked:
                known = {side[0].hash: side[-1] for side in fork.sides}
                chosen = home.store.resolve(next(known[r.hash] for r in wanted if r.hash in known).hash)
                if chosen.signer_id == mac(home.number).device_id:
                    home.store.advance(affirm(chosen, mac(home.number)))
