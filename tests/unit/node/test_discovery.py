from __future__ import annotations

import errno
import os
from types import SimpleNamespace
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import NodeError
from core.node.peers.discovery import Sighting, is_of_group, read_sighting
from core.node.peers.search import Search
from core.text import Clean, clean_name
from core.trust.identity import parse_text_id
from tests.support.contexts import context_of
from tests.support.macs import mac

ID = mac(0).text_id
RAW = ID.encode()
ADDRESS = ["192.168.1.7"]


@pytest.mark.parametrize(
    ("number", "said"),
    [(errno.EADDRINUSE, "(another account of this Mac uses it)"), (errno.ENODEV, "([Errno 19] No such device)")],
)
async def test_why_bonjour_is_not_available_is_said(number: int, said: str) -> None:
    class Deaf:
        async def look(self, _: int) -> NoReturn:
            raise OSError(number, os.strerror(number))

    node = context_of()
    mesh = SimpleNamespace(port=1, dialling=SimpleNamespace(roster_changed=lambda: None))
    search = Search(node, Deaf(), None, mesh, None)  # type: ignore[arg-type]
    await search.advertise()
    assert said in node.bus.now.logs[-1].text
    with pytest.raises(NodeError) as caught:
        await search.look_again()
    assert said in caught.value.what


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"studio", "studio"),
        (b"\x1b]52;c;aGk=\x07studio", "]52;c;aGk=studio"),
        (b"a\x1b[2Jb\x00c\r\nd", "a[2Jbcd"),
        ("mac\u202egnp\u2066".encode(), "macgnp"),
        ("\x9b31mred".encode(), "31mred"),
        (b"x" * 400, "x" * 32),
    ],
)
def test_a_hostile_name_is_cleaned(name: bytes, shown: str) -> None:
    sighting = read_sighting({b"id": RAW, b"name": name, b"v": name}, ADDRESS, 4717)
    assert sighting == Sighting(device_id=ID, name=Clean(shown), version=shown, hosts=(*ADDRESS,), port=4717)


@pytest.mark.parametrize(
    ("properties", "addresses", "port"),
    [
        ({}, ADDRESS, 1),
        ({b"id": RAW}, ADDRESS, 1),
        ({b"id": RAW, b"name": None}, ADDRESS, 1),
        ({b"id": RAW, b"name": b"\x1b\x07"}, ADDRESS, 1),
        ({b"id": RAW, b"name": b"\xff\xfe"}, ADDRESS, 1),
        ({b"id": None, b"name": b"studio"}, ADDRESS, 1),
        ({b"id": b"", b"name": b"studio"}, ADDRESS, 1),
        ({b"id": RAW[:-1], b"name": b"studio"}, ADDRESS, 1),
        ({b"id": RAW + b"a", b"name": b"studio"}, ADDRESS, 1),
        ({b"id": RAW.upper(), b"name": b"studio"}, ADDRESS, 1),
        ({b"id": b"1" * 26, b"name": b"studio"}, ADDRESS, 1),
        ({b"id": b"\xff" * 26, b"name": b"studio"}, ADDRESS, 1),
        ({b"id": RAW[:-1] + b"\x00", b"name": b"studio"}, ADDRESS, 1),
        ({b"id": RAW, b"name": b"studio"}, [], 1),
        ({b"id": RAW, b"name": b"studio"}, ADDRESS, None),
        ({b"id": RAW, b"name": b"studio"}, ADDRESS, 0),
    ],
)
def test_what_is_not_ours_or_not_clean_is_dropped(
    properties: dict[bytes, bytes | None], addresses: list[str], port: int | None
) -> None:
    assert read_sighting(properties, addresses, port) is None


@pytest.mark.parametrize(
    ("told", "own", "meant"),
    [
        pytest.param(None, "", True, id="at-home"),
        pytest.param(b"demo-1", "", False, id="a-demo-at-home"),
        pytest.param(None, "demo-1", False, id="a-home-in-a-demo"),
        pytest.param(b"demo-1", "demo-1", True, id="one-demo"),
        pytest.param(b"demo-2", "demo-1", False, id="two-demos"),
    ],
)
@pytest.mark.promise("P12")
def test_a_demo_s_macs_and_a_home_s_never_meet(told: bytes | None, own: str, meant: bool) -> None:
    record = {b"id": RAW, b"name": b"studio"} | ({} if told is None else {b"group": told})
    assert is_of_group({**record}, own) is meant


records = st.dictionaries(
    st.one_of(st.sampled_from([b"id", b"name", b"v"]), st.binary(max_size=4)),
    st.one_of(st.none(), st.just(RAW), st.binary(max_size=64), st.text(max_size=40).map(lambda t: t.encode("utf-8"))),
)


@given(records, st.lists(st.just("10.0.0.1"), max_size=2), st.one_of(st.none(), st.integers(0, 65535)))
def test_no_record_raises_and_no_control_character_gets_through(
    properties: dict[bytes, bytes | None], addresses: list[str], port: int | None
) -> None:
    sighting = read_sighting(properties, addresses, port)
    if sighting is not None:
        assert sighting.name == clean_name(sighting.name)
        assert sighting.version in ("", clean_name(sighting.version))
        assert len(parse_text_id(sighting.device_id)) == 16
