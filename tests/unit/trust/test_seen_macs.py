from pathlib import Path

import pytest

from core.errors import TrustError
from core.trust.seen_macs import MAX_SEEN, SeenMacs
from tests.support.home_files import in_format


def device(number: int) -> bytes:
    return number.to_bytes(16, "big")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "seen"


def test_a_mac_counts_as_met_from_the_next_life_of_the_node_on(path: Path) -> None:
    first = SeenMacs(path)
    first.note(device(1), 100.5)
    first.note(device(1), 200.0)
    assert not first.met_before(device(1))
    first.save()
    later = SeenMacs(path)
    assert later.met_before(device(1))
    assert not later.met_before(device(2))
    assert b"100.5" in path.read_bytes(), "when it was met first, not last"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_flood_of_names_pushes_out_the_longest_unseen_but_no_member(path: Path) -> None:
    seen = SeenMacs(path)
    member, early, regular = device(1_000_000), device(1_000_001), device(1_000_002)
    for one in (member, early, regular):
        seen.note(one, 1.0)
    for number in range(3 * MAX_SEEN):
        seen.note(device(number), 2.0, members=[member])
        seen.note(regular, 2.0, members=[member])
    seen.save()
    later = SeenMacs(path)
    assert later.met_before(member)
    assert later.met_before(regular)
    assert not later.met_before(early)
    assert sum(later.met_before(device(n)) for n in range(3 * MAX_SEEN)) == MAX_SEEN - 2
    assert path.stat().st_size < 16 * 1024


@pytest.mark.slow
def test_members_alone_do_not_grow_it_without_bound(path: Path) -> None:
    seen, everyone = SeenMacs(path), [device(n) for n in range(MAX_SEEN + 5)]
    for one in everyone:
        seen.note(one, 1.0, members=everyone)
    seen.save()
    assert sum(SeenMacs(path).met_before(one) for one in everyone) == MAX_SEEN


def test_it_is_written_only_when_something_changed(path: Path) -> None:
    seen = SeenMacs(path)
    seen.save()
    assert not path.exists()
    seen.note(device(1), 1.0)
    seen.save()
    path.unlink()
    seen.note(device(1), 2.0)
    seen.save()
    assert not path.exists()


DAMAGED = (b"{}", b'[["x", 1.0]]', b'[["' + b"a" * 26 + b'", "soon"]]', b"\xff")


@pytest.mark.parametrize("content", [b"", b"[]", *map(in_format, DAMAGED)])
def test_a_damaged_file_is_refused_with_the_cure(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o600)
    seen = SeenMacs(path)
    assert not seen.met_before(device(1)), "a node starts all the same"
    with pytest.raises(TrustError, match="damaged") as caught:
        seen.save()
    assert path.read_bytes() == content
    assert f"rm {path}" in caught.value.fix


def test_a_file_that_others_can_write_is_refused(path: Path) -> None:
    path.write_bytes(in_format(b"[]"))
    path.chmod(0o666)
    with pytest.raises(TrustError, match="Other users"):
        SeenMacs(path).save()
