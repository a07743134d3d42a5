"""Admission by every door, over real sockets of this machine."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest

from core.link.listener import caller_address, open_listener, plain_host


@pytest.fixture
def door() -> socket.socket:
    door = open_listener("0.0.0.0", 0, 8)
    if door.family != socket.AF_INET6:
        door.close()
        pytest.skip("this system has no IPv6")
    door.setblocking(True)
    return door


@pytest.mark.parametrize(
    ("host", "name"),
    [
        pytest.param("127.0.0.1", "127.0.0.1", id="by IPv4, and written so"),
        pytest.param("::1", None, id="by IPv6, not along a cable"),
    ],
)
def test_who_comes_in_on_all_interfaces(door: socket.socket, host: str, name: str | None) -> None:
    with closing(door), socket.create_connection((host, door.getsockname()[1])):
        sock, address = door.accept()
        sock.close()
        assert caller_address(door, address) == name


def test_where_a_person_gave_an_address_it_counts() -> None:
    with closing(open_listener("::1", 0, 8)) as door:
        assert caller_address(door, ("::1", 4717, 0, 0)) == "::1"
    with closing(open_listener("127.0.0.1", 0, 8)) as door:
        assert caller_address(door, ("127.0.0.1", 4717)) == "127.0.0.1"


def test_a_port_that_a_program_has_by_ipv4_alone_is_taken() -> None:
    with socket.create_server(("0.0.0.0", 0)) as other, pytest.raises(OSError, match="in use"):
        open_listener("0.0.0.0", other.getsockname()[1], 8)


def test_an_address_is_written_in_one_way() -> None:
    told = (("fe80::9%en2", 1, 0, 5), ("::ffff:192.168.1.7", 1, 0, 0), ("192.168.1.7", 1), ("",))
    assert [plain_host(each) for each in told] == ["fe80::9", "192.168.1.7", "192.168.1.7", ""]


def test_who_is_at_the_other_end_of_a_cable_comes_in(door: socket.socket) -> None:
    with closing(door):
        assert caller_address(door, ("fe80::9%en2", 4717, 0, 5)) == "fe80::9"
        assert caller_address(door, ("2001:db8::9", 4717, 0, 0)) is None
