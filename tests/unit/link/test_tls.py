import errno
import ssl
import sys
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from core.errors import HandshakeError, LinkLost, LinkTimeout
from core.link.tls import check_peer, client_context, link_error, server_context
from core.trust.identity import device_id_of, text_id
from core.trust.roster.bundle import Cluster
from tests.support.macs import certificate, cluster, mac, member_of


def shake(client: ssl.SSLContext, server: ssl.SSLContext) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """A handshake in memory, and one byte each way so that late alerts and tickets arrive. Raises ssl.SSLError."""
    a, b = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = client.wrap_bio(a, b), server.wrap_bio(b, a, server_side=True)
    waiting = list(ends)
    while waiting:
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                pass
    for speaker, hearer in (ends, ends[::-1]):
        speaker.write(b"x")
        assert hearer.read(1) == b"x"
    return ends


def stranger(tmp_path: Path, protocol: int, *, ca: bool = False) -> tuple[ssl.SSLContext, bytes]:
    """A context with its own key and certificate that trusts any certificate of mac 1."""
    key = Ed25519PrivateKey.generate()
    der = certificate(key, ca=ca)
    return with_leaf(tmp_path, protocol, key, der), der


def with_leaf(tmp_path: Path, protocol: int, key: Ed25519PrivateKey, *chain: bytes) -> ssl.SSLContext:
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    (tmp_path / "rogue.pem").write_text(pem + "".join(ssl.DER_cert_to_PEM_cert(der) for der in chain))
    context = ssl.SSLContext(protocol)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(tmp_path / "rogue.pem")
    return context


def test_members_meet_over_tls_1_3() -> None:
    a, b = shake(client_context(mac(0), cluster()), server_context(mac(1), cluster()))
    assert a.version() == b.version() == "TLSv1.3"
    assert check_peer(a.getpeercert(True), cluster(), mac(1).device_id).device_id == mac(1).device_id
    assert check_peer(b.getpeercert(True), cluster()).device_id == mac(0).device_id


def test_contexts_trust_the_roster_only_and_take_no_key_log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys"))
    for context in (client_context(mac(0), cluster(3)), server_context(mac(0), cluster(3))):
        assert context.keylog_filename is None
        assert len(context.get_ca_certs(binary_form=True)) == 0  # they are leaves, no CAs
        assert context.cert_store_stats()["x509"] == 2
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.minimum_version is context.maximum_version is ssl.TLSVersion.TLSv1_3


def test_tls_1_2_is_refused() -> None:
    old = client_context(mac(0), cluster())
    old.minimum_version = ssl.TLSVersion.TLSv1_2
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        shake(old, server_context(mac(1), cluster()))


def test_tickets_are_off_and_nothing_is_resumed() -> None:
    server = server_context(mac(1), cluster())
    assert server.num_tickets == 0
    client = client_context(mac(0), cluster())
    a, b = shake(client, server)
    assert a.session is None or not a.session.has_ticket
    assert not a.session_reused
    assert not b.session_reused


def test_a_client_without_a_certificate_is_refused() -> None:
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    bare.check_hostname = False
    bare.verify_mode = ssl.CERT_NONE
    with pytest.raises(ssl.SSLError):
        shake(bare, server_context(mac(1), cluster()))


def test_strangers_are_refused_on_both_sides(tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLError):
        shake(stranger(tmp_path, ssl.PROTOCOL_TLS_CLIENT)[0], server_context(mac(1), cluster()))
    with pytest.raises(ssl.SSLError):
        shake(client_context(mac(0), cluster()), stranger(tmp_path, ssl.PROTOCOL_TLS_SERVER)[0])
    with pytest.raises(ssl.SSLError):
        shake(client_context(mac(2), cluster(3)), server_context(mac(1), cluster(2)))


def test_a_leaf_minted_by_a_member_that_is_a_ca_is_refused(tmp_path: Path) -> None:
    """OpenSSL accepts it, because a pinned certificate is a CA to it; the exact key check must refuse it."""
    ca_key, leaf_key = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    public = ca_key.public_key().public_bytes_raw()
    name = certificate_name(public)
    ca = certificate(ca_key, ca=True)
    minted = certificate(leaf_key, issuer=name, signer=ca_key)
    roster = cluster().roster
    evil = msgspec.structs.replace(member_of(mac(1), 2), public=public, device_id=device_id_of(public))
    group = Cluster(
        msgspec.structs.replace(roster, members=(*roster.members, evil)),
        {**cluster().certificates, evil.device_id: ca},
    )
    server = server_context(mac(1), group)
    _, seen = shake(with_leaf(tmp_path, ssl.PROTOCOL_TLS_CLIENT, leaf_key, minted), server)
    with pytest.raises(HandshakeError, match="not accepted"):
        check_peer(seen.getpeercert(True), group)
    _, seen = shake(with_leaf(tmp_path, ssl.PROTOCOL_TLS_CLIENT, ca_key, ca), server_context(mac(1), group))
    with pytest.raises(HandshakeError, match="is a CA"):
        check_peer(seen.getpeercert(True), group)


def certificate_name(public: bytes) -> str:
    return text_id(device_id_of(public))


def test_the_exact_key_decides_after_the_handshake() -> None:
    leaf = mac(1).certificate_der
    with pytest.raises(HandshakeError, match="was expected"):
        check_peer(leaf, cluster(3), mac(2).device_id)
    with pytest.raises(HandshakeError, match="not in this cluster"):
        check_peer(mac(2).certificate_der, cluster(2))
    with pytest.raises(HandshakeError, match="not accepted"):
        check_peer(None, cluster())
    roster = cluster().roster
    swapped = msgspec.structs.replace(roster.members[1], public=mac(2).public)
    group = Cluster(msgspec.structs.replace(roster, members=(roster.members[0], swapped)), cluster().certificates)
    with pytest.raises(HandshakeError, match="not in this cluster"):
        check_peer(leaf, group)


def test_a_member_below_paired_gets_no_link() -> None:
    roster = cluster().roster
    seen = member_of(mac(1), 2, level="seen")
    group = Cluster(msgspec.structs.replace(roster, members=(roster.members[0], seen)), cluster().certificates)
    with pytest.raises(HandshakeError, match="is seen"):
        check_peer(mac(1).certificate_der, group)


def test_errors_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    no_route = OSError(errno.EHOSTUNREACH, "No route to host")
    monkeypatch.setattr(sys, "platform", "linux")
    assert "Local Network" not in str(link_error(no_route, "mini"))
    monkeypatch.setattr(sys, "platform", "darwin")
    error = link_error(no_route, "mini")
    assert isinstance(error, LinkLost)
    assert "Local Network" in error.fix
    assert isinstance(link_error(TimeoutError(), "mini"), LinkTimeout)
    assert isinstance(link_error(ConnectionResetError(errno.ECONNRESET, "reset"), "mini"), LinkLost)
    assert isinstance(link_error(ssl.SSLEOFError(), "mini"), LinkLost)
    assert isinstance(link_error(ssl.SSLError(1, "nonsense"), "mini"), HandshakeError)
    assert "Nothing listens" in link_error(ConnectionRefusedError(errno.ECONNREFUSED, "refused"), "mini").what
