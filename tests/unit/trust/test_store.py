import os
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from core.errors import NotPaired, RosterError
from core.settings import MAX_CONTROL_BODY
from core.trust.identity import device_id_of
from core.trust.roster.bundle import decode_bundle
from core.trust.roster.changes import add, affirm, promote, revoke
from core.trust.roster.format import Role, Roster, decode
from core.trust.roster.store import RosterStore
from tests.support.macs import bundle, certificate, chain, cluster, mac, member_of, signed

FIRST, SECOND, THIRD = chain(3)


@pytest.fixture
def store(tmp_path: Path) -> RosterStore:
    """A Mac at epoch 2 with mac 0 as the admin."""
    store = RosterStore(tmp_path / "r")
    store.adopt(bundle((FIRST, SECOND), *(mac(n).certificate_der for n in range(3))))
    return store


def rival() -> Roster:
    """Another roster of epoch 2, by the same admin."""
    return add(FIRST, mac(0), member_of(mac(2), 2))


def again(tmp_path: Path) -> RosterStore:
    return RosterStore(tmp_path / "r")


def test_the_store_remembers(tmp_path: Path) -> None:
    store = RosterStore(tmp_path / "r")
    assert store.current is None
    with pytest.raises(NotPaired):
        store.cluster()
    assert store.adopt(bundle(chain(3), *(mac(n).certificate_der for n in range(3))))
    again = RosterStore(tmp_path / "r")
    assert again.current == store.current == chain(3)[-1]
    assert again.cluster() == cluster(3)
    assert {p.stat().st_mode & 0o777 for p in (tmp_path / "r").iterdir()} == {0o600}


def test_the_store_passes_over_what_it_knows_and_refuses_rollback(tmp_path: Path) -> None:
    store = RosterStore(tmp_path / "r")
    store.adopt(bundle(chain(3)))
    assert not store.adopt(bundle(chain(3)[:1]))
    assert not store.adopt(bundle(chain(3)))
    assert store.current == chain(3)[-1]


def test_the_store_refuses_gaps_and_strangers_and_keeps_nothing_of_them(store: RosterStore, tmp_path: Path) -> None:
    before = sorted(p.name for p in (tmp_path / "r").iterdir())
    for bad in (bundle(chain(5)[3:]), bundle(chain(1, b"D" * 16)), bundle((THIRD, chain(5)[4]))):
        with pytest.raises(RosterError):
            store.adopt(bad)
    assert sorted(p.name for p in (tmp_path / "r").iterdir()) == before
    assert store.current == SECOND


def test_the_store_refuses_a_chain_with_a_hole(tmp_path: Path) -> None:
    RosterStore(tmp_path / "r").adopt(bundle(chain(3)))
    (tmp_path / "r" / "00000002.roster").unlink()
    with pytest.raises(RosterError, match="Gap"):
        RosterStore(tmp_path / "r")


def test_the_store_refuses_files_that_others_can_write(tmp_path: Path) -> None:
    RosterStore(tmp_path / "r").adopt(bundle(chain(3)))
    (tmp_path / "r" / "00000002.roster").chmod(0o666)
    with pytest.raises(RosterError, match="Other users"):
        RosterStore(tmp_path / "r")


def test_a_full_disk_keeps_the_old_roster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = RosterStore(tmp_path / "r")
    store.adopt(bundle(chain(1)))

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RosterError, match="No space left"):
        store.adopt(bundle(chain(2)))
    monkeypatch.undo()
    assert store.adopted_at is not None
    assert store.current == RosterStore(tmp_path / "r").current == chain(1)[-1]
    assert not list((tmp_path / "r").glob("*.tmp"))


def test_a_certificate_that_could_mint_identities_is_refused(tmp_path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes_raw()
    member = msgspec.structs.replace(member_of(mac(1), 2), public=public, device_id=device_id_of(public))
    roster = add(chain(1)[0], mac(0), member)
    store = RosterStore(tmp_path / "r")
    with pytest.raises(RosterError, match="is a CA"):
        store.adopt(bundle((chain(1)[0], roster), certificate(key, ca=True)))
    assert store.current is None
    assert store.adopt(bundle((chain(1)[0], roster), certificate(key)))


def test_certificates_of_strangers_are_left_out(tmp_path: Path) -> None:
    store = RosterStore(tmp_path / "r")
    store.adopt(bundle(chain(2), mac(0).certificate_der, mac(2).certificate_der))
    assert set(store.cluster().certificates) == {mac(0).device_id}
    store.adopt(bundle(chain(3)[2:], mac(2).certificate_der))
    assert set(store.cluster().certificates) == {mac(0).device_id, mac(2).device_id}


def test_bundles_since_an_epoch_and_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = RosterStore(tmp_path / "r")
    store.adopt(bundle(chain(6), *(mac(n).certificate_der for n in range(6))))
    assert [decode(r).epoch for r in decode_bundle(store.bundle(5)).rosters] == [5, 6]
    assert len(store.bundle()) <= MAX_CONTROL_BODY
    monkeypatch.setattr("core.trust.roster.store.MAX_CONTROL_BODY", len(store.bundle()) - 1)
    other = RosterStore(tmp_path / "other")
    epochs: list[int] = []
    while other.current != store.current:
        assert other.adopt(store.bundle(epochs[-1] if epochs else 0))
        assert other.current is not None
        epochs.append(other.current.epoch)
    assert epochs == [5, 6]
    assert other.cluster() == store.cluster()


def test_a_chain_that_was_longer_once_is_refused_with_the_cure(store: RosterStore, tmp_path: Path) -> None:
    store.adopt(bundle((THIRD,)))
    (tmp_path / "r" / "00000003.roster").unlink()
    with pytest.raises(RosterError, match="end at epoch 2; this Mac had 3") as caught:
        again(tmp_path)
    assert "newer backup" in caught.value.fix
    for name in ("00000001.roster", "00000002.roster"):
        (tmp_path / "r" / name).unlink()
    with pytest.raises(RosterError, match="end at epoch 0"):
        again(tmp_path)


def test_the_highest_epoch_is_on_disk_before_it_is_used(
    store: RosterStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = os.replace

    def not_the_epoch(source: Path, target: Path) -> None:
        if Path(target).name == "epoch":
            raise OSError(28, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", not_the_epoch)
    with pytest.raises(RosterError, match="No space left"):
        store.adopt(bundle(chain(4)[2:]))
    monkeypatch.undo()
    assert store.current == again(tmp_path).current == SECOND
    assert store.adopt(bundle((add(SECOND, mac(0), member_of(mac(3), 3)),)))
    assert again(tmp_path).current == store.current


def test_a_crash_between_roster_and_epoch_leaves_a_whole_chain(store: RosterStore, tmp_path: Path) -> None:
    (tmp_path / "r" / "epoch").write_bytes(b"1")
    assert again(tmp_path).current == SECOND
    assert (tmp_path / "r" / "epoch").read_bytes() == b"2"


@pytest.mark.parametrize("content", [b"", b"two", b"-1", b"\xff", b"9" * 5000])
def test_an_unreadable_epoch_is_refused(store: RosterStore, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "r" / "epoch").write_bytes(content)
    with pytest.raises(RosterError, match="unreadable"):
        again(tmp_path)


def test_the_age_of_a_roster_is_when_this_mac_took_it(store: RosterStore, tmp_path: Path) -> None:
    assert RosterStore(tmp_path / "empty").adopted_at is None
    os.utime(tmp_path / "r" / "00000002.roster", (0, 12_345))
    assert again(tmp_path).adopted_at == 12_345
    store.adopt(bundle((THIRD,)))
    assert store.adopted_at == (tmp_path / "r" / "00000003.roster").stat().st_mtime


def test_a_fork_is_remembered_with_both_sides_and_blocks_every_member(store: RosterStore, tmp_path: Path) -> None:
    assert store.forked is None
    with pytest.raises(RosterError, match="Fork"):
        store.adopt(bundle((FIRST, rival())))
    for one in (store, again(tmp_path)):
        assert one.forked is not None
        assert one.forked.tips == (SECOND, rival())
        assert one.forked.tips[1].signer_id == mac(0).device_id
        assert [one.level(mac(n).device_id) for n in range(4)] == ["blocked", "blocked", "unpaired", "unpaired"]


def test_while_nobody_has_decided_nothing_new_is_adopted(store: RosterStore, tmp_path: Path) -> None:
    """Not even on our own side: otherwise a hostile admin would silence the alarm about itself."""
    with pytest.raises(RosterError, match="Fork"):
        store.adopt(bundle((rival(),)))
    with pytest.raises(RosterError, match="still undecided"):
        store.adopt(bundle((THIRD,)))
    with pytest.raises(RosterError, match="still undecided"):
        store.advance(affirm(SECOND, mac(0)))
    assert not store.adopt(bundle((SECOND,)))
    assert store.current == again(tmp_path).current == SECOND


def test_a_person_keeps_our_side_and_an_admin_affirms_it(store: RosterStore, tmp_path: Path) -> None:
    with pytest.raises(RosterError, match="Fork"):
        store.adopt(bundle((rival(),)))
    assert store.resolve(SECOND.hash) == SECOND
    assert store.forked is again(tmp_path).forked is None
    for one in (store, again(tmp_path)):
        with pytest.raises(RosterError, match="decided against"):
            one.adopt(bundle((rival(),)))
        assert one.forked is None
    store.advance(affirm(SECOND, mac(0)))
    assert store.level(mac(1).device_id) == "paired"
    with pytest.raises(RosterError):
        store.adopt(bundle((rival(), add(rival(), mac(0), member_of(mac(1), 3)))))
    assert store.forked is again(tmp_path).forked is None


def test_a_person_takes_the_other_side(store: RosterStore, tmp_path: Path) -> None:
    with pytest.raises(RosterError, match="Fork"):
        store.adopt(bundle((rival(),)))
    assert store.resolve(rival().hash) == rival()
    for one in (store, again(tmp_path)):
        assert one.current == rival()
        assert one.forked is None
        assert set(one.cluster().certificates) <= {mac(0).device_id, mac(2).device_id}
        with pytest.raises(RosterError, match="decided against"):
            one.adopt(bundle((SECOND,)))
    assert store.adopt(bundle((rival(), affirm(rival(), mac(0))), mac(2).certificate_der))
    assert store.level(mac(2).device_id) == "paired"


def test_only_a_side_of_the_fork_can_be_kept(store: RosterStore) -> None:
    for wrong in (SECOND.hash, b"x" * 32):
        with pytest.raises(RosterError, match="no such fork"):
            store.resolve(wrong)
    with pytest.raises(RosterError, match="Fork"):
        store.adopt(bundle((rival(),)))
    with pytest.raises(RosterError, match="no such fork"):
        store.resolve(FIRST.hash)
    assert store.forked


def test_a_crash_while_the_other_side_is_taken_asks_again(store: RosterStore, tmp_path: Path) -> None:
    with pytest.raises(RosterError, match="Fork"):
        store.adopt(bundle((rival(),)))
    roster = (tmp_path / "r" / "00000002.roster").read_bytes()
    store.resolve(rival().hash)
    (tmp_path / "r" / "00000002.roster").write_bytes(roster)
    assert again(tmp_path).forked


def test_a_fork_that_no_admin_signed_blocks_nobody(store: RosterStore) -> None:
    forged = signed(FIRST, mac(1), signer_id=mac(0).device_id)
    for bad in (forged, signed(FIRST, mac(1)), signed(FIRST, mac(2), members=(member_of(mac(2), 2, Role.ADMIN),))):
        with pytest.raises(RosterError):
            store.adopt(bundle((bad,)))
    assert store.forked is None


def test_who_was_an_admin_once_cannot_block_the_cluster_by_an_old_fork(tmp_path: Path) -> None:
    both = promote(SECOND, mac(0), mac(1).device_id)
    out = revoke(both, mac(0), mac(1).device_id)
    store = RosterStore(tmp_path / "r")
    store.adopt(bundle((FIRST, SECOND, both, out, affirm(out, mac(0)))))
    with pytest.raises(RosterError, match="Fork"):
        store.adopt(bundle((both, revoke(both, mac(1), mac(0).device_id))))
    assert store.forked is None
    assert store.level(mac(1).device_id) == "blocked"


def test_two_first_rosters_are_no_proof_of_anything(tmp_path: Path) -> None:
    """Any Mac can found a cluster with an id that it heard somewhere."""
    store = RosterStore(tmp_path / "r")
    store.adopt(bundle((FIRST,)))
    founder = member_of(mac(1), 1, Role.ADMIN)
    of_a_stranger = signed(FIRST, mac(1), epoch=1, prev_hash=bytes(32), members=(founder,))
    with pytest.raises(RosterError, match="Fork"):
        store.adopt(bundle((of_a_stranger,)))
    assert store.forked is None


def test_macs_at_one_epoch_find_out_that_they_forked(store: RosterStore, tmp_path: Path) -> None:
    other = RosterStore(tmp_path / "other")
    other.adopt(bundle((FIRST, rival())))
    with pytest.raises(RosterError, match="Fork"):
        store.adopt(other.bundle(2))
    with pytest.raises(RosterError, match="Fork"):
        other.adopt(store.bundle(2))
    assert store.forked
    assert other.forked


def test_a_mac_behind_finds_out_too(store: RosterStore, tmp_path: Path) -> None:
    other = RosterStore(tmp_path / "other")
    other.adopt(bundle((FIRST, rival(), affirm(rival(), mac(0)))))
    with pytest.raises(RosterError, match="Fork"):
        store.adopt(other.bundle(2))
    assert store.forked
    store.resolve(rival().hash)
    assert store.adopt(other.bundle(2))
    assert store.current == other.current


def test_levels_come_from_the_roster(store: RosterStore) -> None:
    assert store.level(mac(1).device_id) == "paired"
    assert store.level(mac(1).device_id, wrong_key=True) == "blocked"
    assert store.level(mac(1).device_id, other_model=True) == "blocked"
    assert store.level(mac(2).device_id) == "unpaired"
    assert store.level(mac(2).device_id, seen=True) == "seen"
    store.advance(revoke(SECOND, mac(0), mac(1).device_id))
    assert store.level(mac(1).device_id, seen=True) == "blocked"


def test_what_this_mac_makes_itself_is_taken_like_anything_else(store: RosterStore) -> None:
    store.advance(THIRD, [mac(2).certificate_der])
    assert store.current == THIRD
    assert mac(2).device_id in store.cluster().certificates
    with pytest.raises(RosterError, match="Gap"):
        store.advance(chain(5)[4])
