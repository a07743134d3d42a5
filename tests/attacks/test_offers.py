"""T2, T5, T7: offers to a real node by impostors, and by members that ask for weaker parameters."""

from __future__ import annotations

import secrets
import socket
import ssl
import warnings
from collections.abc import Iterator
from contextlib import suppress

import pytest

from core.errors import HandshakeError, LinkError
from core.events import PairingChanged
from core.link.control_link import dial_control
from core.link.session import AUTH_BYTES, HELLO, REPLY_BYTES, Dialler, Kind
from core.link.tls import client_context, server_context
from core.requests.trust import Digits
from core.trust.pairing import P4_BYTES, REVEAL_BYTES, Confirmed, Offer, reveal_length
from core.trust.roster.bundle import Cluster
from core.trust.roster.joining import Card, decode_card, encode_card, found_with
from tests.attacks.victim import (
    HOST,
    SIZE,
    Observer,
    Stranger,
    Victim,
    call,
    cast,
    exactly,
    handshake,
    last_words,
    member_client,
    member_server,
    reckless,
    running_victim,
    serving,
    signing_key,
)
from tests.support.macs import certificate, cluster, mac

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def victim() -> Iterator[Victim]:
    with running_victim(cast().victim, "--no-multicast") as running:
        yield running


def hello_of(sock: socket.socket, victim: Victim, number: int, knows: Cluster | None = None) -> bytes:
    """The hello of a member over its TLS connection to the victim."""
    assert isinstance(sock, ssl.SSLSocket)
    group = knows or cluster(SIZE)
    peer = group.roster.member(victim.me.device_id)
    assert peer
    shown = sock.getpeercert(binary_form=True) or b""
    return Dialler(mac(number), group, peer, Kind.CONTROL, shown, secrets.token_bytes).hello


VERSIONS: dict[str, tuple[int, bytes]] = {
    "version 0": (4, bytes(2)),
    "version 2": (4, b"\2\0"),
    "version 65535": (4, b"\xff\xff"),
}
OFFERS: dict[str, tuple[int, bytes]] = {
    "suite 0": (6, bytes(2)),
    "suite 2": (6, b"\2\0"),
    "another magic": (0, b"MCH2"),
    "a data link on the control port": (8, b"\1"),
    "a kind that is none": (8, b"\7"),
    "reserved bytes": (15, b"\1"),
    "another cluster": (16, b"D" * 16),
    "another sender": (32, b"s" * 16),
    "another receiver": (48, b"r" * 16),
    "a key of low order": (104, bytes(32)),
}


@pytest.mark.parametrize("offer", OFFERS)
@pytest.mark.promise("P4")
async def test_an_offer_of_anything_else_is_met_with_silence(victim: Victim, offer: str) -> None:
    await _offered(victim, *OFFERS[offer], b"")


@pytest.mark.parametrize("offer", VERSIONS)
@pytest.mark.promise("P4")
async def test_an_offer_of_another_version_is_met_with_the_own_hello_and_nothing_signed(
    victim: Victim, offer: str
) -> None:
    await _offered(victim, *VERSIONS[offer], b"MCH1\1\0")


async def _offered(victim: Victim, at: int, value: bytes, answer: bytes) -> None:
    with call(victim.port, member_client(cast().low)) as sock:
        hello = bytearray(hello_of(sock, victim, cast().low))
        assert hello[at : at + len(value)] != value
        hello[at : at + len(value)] = value
        sock.sendall(hello)
        said = last_words(sock)
        assert (said[:6], len(said)) == (answer, HELLO.size if answer else 0), "nothing is signed for it"
    link = await victim.dial(cast().low)
    link.close()
    await link.wait_closed()


@pytest.mark.parametrize(
    ("offer", "said"),
    [
        ("version 0", "begins links in version 0, this Mac in version 1"),
        ("version 2", "begins links in version 2, this Mac in version 1"),
        ("suite 2", "suite 2"),
        ("another cluster", "belongs to another cluster"),
        ("another sender", "says that it is another one"),
        ("another receiver", "was calling another Mac"),
        ("a key of low order", "make the secret known"),
    ],
)
@pytest.mark.promise("T7")
async def test_who_dials_is_told_in_words_what_the_other_end_offered(offer: str, said: str) -> None:
    """A member answers with a weaker offer: the typed error names it, and both versions if it is the version."""
    me, them = mac(cast().victim), cast().high
    at, value = (OFFERS | VERSIONS)[offer]

    def answer(sock: socket.socket) -> None:
        exactly(sock, HELLO.size)
        peer = cluster(SIZE).roster.member(me.device_id)
        assert peer
        own = Dialler(mac(them), cluster(SIZE), peer, Kind.CONTROL, b"", secrets.token_bytes)
        reply = bytearray(own.hello + bytes(AUTH_BYTES))
        reply[at : at + len(value)] = value
        sock.sendall(reply)
        last_words(sock)

    with serving(answer, member_server(them)) as port, pytest.raises(HandshakeError, match=said):
        await dial_control(HOST, port, identity=me, cluster=cluster(SIZE), peer_id=mac(them).device_id, timeout_s=60.0)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1])
@pytest.mark.promise("P4")
def test_an_older_tls_is_refused(victim: Victim, version: ssl.TLSVersion) -> None:
    context = reckless(client_context(mac(cast().low), cluster(SIZE)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = version
        context.maximum_version = version
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises(ssl.SSLError), call(victim.port, context):
        pass


async def test_an_older_tls_is_refused_by_who_dials_too(victim: Victim) -> None:
    context = reckless(server_context(mac(cast().high), cluster(SIZE)))
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
    with serving(lambda sock: None, context) as port, pytest.raises(LinkError):
        await victim.dial(cast().low, port=port)


# ---- leaves that were never confirmed


def leaves() -> dict[str, ssl.SSLContext | None]:
    """All leaves that an attacker without a member's key can show."""
    low, own = mac(cast().low).text_id, mac(cast().victim).text_id
    minted = Stranger(issuer=low, signer=signing_key(cast().low))
    in_its_name = Stranger(name=low, issuer=low, signer=signing_key(cast().low))
    bare = reckless(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    client = ssl.PROTOCOL_TLS_CLIENT
    return {
        "no TLS at all": None,
        "no certificate": bare,
        "a stranger's leaf": Stranger().context(client),
        "a stranger's leaf in a member's name": Stranger(name=low).context(client),
        "a stranger's leaf in our own name": Stranger(name=own).context(client),
        "a leaf minted by a member": minted.context(client),
        "a leaf minted by a member, with its chain": minted.context(client, chain=(mac(cast().low).certificate_der,)),
        "a leaf minted by a member in its own name": in_its_name.context(
            client, chain=(mac(cast().low).certificate_der,)
        ),
    }


@pytest.mark.parametrize("leaf", leaves())
@pytest.mark.promise("P5")
async def test_whoever_is_not_in_the_roster_gets_no_word(victim: Victim, leaf: str) -> None:
    async with Observer(victim) as observer:
        before = await observer.links()
        for _ in range(5):
            try:
                with call(victim.port, leaves()[leaf]) as sock:
                    sock.sendall(secrets.token_bytes(REPLY_BYTES))
                    sock.shutdown(socket.SHUT_WR) if leaf == "no TLS at all" else None
                    assert last_words(sock)[:4] != b"MCH1"
            except OSError:
                pass  # its TLS refused at once
        assert await observer.links() == before


@pytest.mark.parametrize("ca", [True, False])
@pytest.mark.promise("P5")
async def test_a_mac_whose_certificate_could_mint_others_is_refused_at_pairing(ca: bool) -> None:
    """Two people compare the digits and agree; the certificate that comes afterwards decides."""
    me = mac(cast().low)
    leaf = certificate(signing_key(cast().low), ca=ca)
    with running_victim(cast().victim, "--no-multicast", rosters=()) as fresh:
        async with Observer(fresh) as observer:
            window = await observer.client.open_pairing()
            with call(window.port) as sock:
                peer = await compared(sock, observer)
                sock.sendall(noted(peer.pack(encode_card(Card(leaf)))))
                theirs = decode_card(peer.unpack(exactly(sock, int.from_bytes(exactly(sock, 4), "little"))))
                with suppress(OSError):  # it may have closed by now
                    sock.sendall(noted(peer.pack(found_with(me, "evil", b"E" * 16, peer, theirs))))
                assert (last_words(sock) == b"") is ca, "with an honest certificate the same pairing goes through"
            if not ca:
                await observer.until(lambda w: any(is_pairing(e, "paired") for e in w.seen), 240, "The pairing")
        assert (list(fresh.home.rosters.iterdir()) == []) is ca


async def compared(sock: socket.socket, observer: Observer) -> Confirmed:
    """Pair as the asking side, up to the point where both have typed the digits."""
    offer = Offer(mac(cast().low), "evil", secrets.token_bytes)
    sock.sendall(offer.commit)
    head = exactly(sock, REVEAL_BYTES)
    p3, comparison = offer.reveal(head + exactly(sock, reveal_length(head)))
    greeting = exactly(sock, int.from_bytes(exactly(sock, 4), "little"))
    sock.sendall(p3 + noted(greeting))
    await observer.until(lambda w: any(is_pairing(e, "compare") for e in w.seen), 240, "The digits")
    await observer.client.type_digits(Digits(digits=comparison.view.digits))
    p4, pledge = comparison.confirm(comparison.view.digits)
    sock.sendall(p4)
    return pledge.verify(exactly(sock, P4_BYTES))


def noted(packed: bytes) -> bytes:
    return len(packed).to_bytes(4, "little") + packed


def is_pairing(event: object, state: str) -> bool:
    return isinstance(event, PairingChanged) and event.state == state


@pytest.mark.promise("P4", "T12")
def test_a_session_is_tls_1_3_never_resumed_and_never_compressed(victim: Victim) -> None:
    """T12 and T2: a resumed session would skip the certificates, and compressed lengths leak the content."""
    context = member_client(cast().low)
    with call(victim.port, context) as first:
        assert isinstance(first, ssl.SSLSocket)
        handshake(first, victim, cast().low)
        assert (first.version(), first.compression()) == ("TLSv1.3", None)
        exactly(first, 1)  # a ticket would have come by now
        session = first.session
        assert session is None or not session.has_ticket
    with (
        socket.create_connection((HOST, victim.port), timeout=60) as plain,
        context.wrap_socket(plain, server_hostname="macluster", session=session) as again,
    ):
        assert not again.session_reused
