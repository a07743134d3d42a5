import pytest

from core.address import Place, checked_place, parse_place
from core.errors import UsageError

NO_PORT = "has no port from 1 to 65535"
NO_ADDRESS = "'' is not the address of a Mac"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        pytest.param("192.168.1.7:1", ("192.168.1.7", 1), id="ipv4"),
        pytest.param("studio.local:4717", ("studio.local", 4717), id="name"),
        pytest.param(" studio.local : 5000 ", ("studio.local", 5000), id="spaces"),
        pytest.param("[fe80::1]:5000", ("fe80::1", 5000), id="ipv6"),
        pytest.param("[fe80::1%en0]:65535", ("fe80::1%en0", 65535), id="ipv6-zone"),
    ],
)
def test_a_place_is_read_and_written(text: str, place: tuple[str, int]) -> None:
    assert parse_place(text) == place
    assert str(checked_place(*place)) == "".join(text.split())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("", NO_PORT, id="nothing"),
        pytest.param("studio", NO_PORT, id="no-port"),
        pytest.param("studio:", NO_PORT, id="empty-port"),
        pytest.param("studio:0", NO_PORT, id="port-0"),
        pytest.param("studio:65536", NO_PORT, id="port-too-large"),
        pytest.param("studio:x", NO_PORT, id="port-of-letters"),
        pytest.param("studio:٥", NO_PORT, id="port-of-other-digits"),
        pytest.param(":4717", NO_ADDRESS, id="no-host"),
    ],
)
def test_what_is_no_place_is_refused_and_says_why(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_place(text)


@pytest.mark.parametrize(
    "host", ["", "a..b", "a" * 64, "x\0y", "\x1b]0;t\x07", "\ud800", ".".join(["a" * 60] * 5)], ids=ascii
)
def test_a_host_that_no_resolver_takes_is_refused(host: str) -> None:
    with pytest.raises(UsageError):
        checked_place(host, 1)


def test_a_place_of_ipv6_has_brackets() -> None:
    assert str(Place("::1", 4717)) == "[::1]:4717"
