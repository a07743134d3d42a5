"""The published vectors of every primitive that we use, through our own functions where they exist.

The vectors of our own handshake, seal and digits (security.md §2.5) are in `test_link_session` and
`test_trust_pairing`. Here a second implementation, made of bare ChaCha20 and Poly1305, reads our sealer's output.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Iterator
from pathlib import Path

import cryptography
import cryptography_vectors
import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.poly1305 import Poly1305

from core.errors import SealError
from core.link import seal
from core.link.frames import FrameType
from core.link.session import LinkSession
from core.trust.identity import Identity, device_id_of, expand, extract, is_signed, text_id
from core.trust.roster.format import Stand

Vector = dict[str, str]


def vectors(path: str) -> Iterator[Vector]:
    """The records of a vector file, `name = value` a line; a record begins with COUNT."""
    with cryptography_vectors.open_vector_file(path, "r") as file:
        record: Vector = {}
        for line in file:
            name, equals, value = (part.strip() for part in line.partition("="))
            if not equals or line.startswith("#"):
                continue
            if name == "COUNT" and record:
                yield record
                record = {}
            record[name.upper()] = value
        yield record


def raw(text: str) -> bytes:
    return text[1:-1].encode() if text.startswith('"') else bytes.fromhex(text)


def test_the_vectors_are_those_of_the_library_in_use() -> None:
    assert cryptography_vectors.__version__.split(".")[0] == cryptography.__version__.split(".")[0]


def test_x25519() -> None:
    records = list(vectors("asymmetric/X25519/rfc7748.txt"))
    for record in records:
        key = X25519PrivateKey.from_private_bytes(raw(record["INPUT_SCALAR"]))
        shared = key.exchange(X25519PublicKey.from_public_bytes(raw(record["INPUT_U"])))
        assert shared.hex() == record["OUTPUT_U"]
    assert len(records) >= 3


def identity_of(seed: bytes) -> Identity:
    key = Ed25519PrivateKey.from_private_bytes(seed)
    public = key.public_key().public_bytes_raw()
    return Identity(
        public=public,
        device_id=device_id_of(public),
        text_id=text_id(device_id_of(public)),
        certificate_der=b"",
        certificate_path=Path(),
        key_path=Path(),
        storage="file permissions",
        passphrase=b"",
        _key=key,
    )


@pytest.mark.slow
def test_ed25519() -> None:
    """All 1,024: each signs, verifies, and does not verify with another message or signature."""
    with cryptography_vectors.open_vector_file("asymmetric/Ed25519/sign.input", "r") as file:
        lines = file.read().split()
    for line in lines:
        secret, public, message, signed = (bytes.fromhex(field) for field in line.split(":")[:4])
        identity, signature = identity_of(secret[:32]), signed[:64]
        assert identity.public == public
        assert identity.sign(message) == signature
        assert is_signed(public, signature, message)
        assert not is_signed(public, signature, message + b"x")
        assert not is_signed(public, signature[:-1] + bytes([signature[-1] ^ 1]), message)
    assert len(lines) == 1024


@pytest.mark.parametrize("path", ["KDF/rfc-5869-HKDF-SHA256.txt", "KDF/hkdf-generated.txt"])
def test_hkdf_sha256(path: str) -> None:
    """Ours makes one block, 32 bytes: that much of every vector."""
    done = 0
    for record in vectors(path):
        if record.get("HASH") not in ("SHA-256", None):
            continue
        prk = extract(raw(record["SALT"]), raw(record["IKM"]))
        if "PRK" in record:
            assert prk.hex() == record["PRK"]
        length = min(32, int(record["L"]))
        assert expand(prk, raw(record["INFO"]), length).hex() == record["OKM"][: 2 * length]
        done += 1
    assert done


@pytest.mark.parametrize("path", ["ciphers/ChaCha20Poly1305/openssl.txt", "ciphers/ChaCha20Poly1305/boringssl.txt"])
def test_chacha20_poly1305(path: str) -> None:
    """The cipher that the seal uses, through the same calls."""
    good = bad = 0
    for record in vectors(path):
        aead = ChaCha20Poly1305(raw(record["KEY"]))
        nonce, aad = raw(record.get("IV") or record["NONCE"]), raw(record.get("AAD", record.get("AD", "")))
        text = raw(record.get("PLAINTEXT", record.get("IN", "")))
        sealed = raw(record.get("CIPHERTEXT", record.get("CT", ""))) + raw(record["TAG"])
        if "RESULT" in record:
            with pytest.raises(InvalidTag):
                aead.decrypt_into(nonce, sealed, aad, bytearray(max(0, len(sealed) - 16)))
            bad += 1
            continue
        out, back = bytearray(len(sealed)), bytearray(len(text))
        aead.encrypt_into(nonce, text, aad, out)
        aead.decrypt_into(nonce, sealed, aad, back)
        assert (bytes(out), bytes(back)) == (sealed, text)
        good += 1
    assert good >= 4
    assert bad or "boringssl" in path


# ---- a second implementation of the seal

HEADER = struct.Struct("<2sBBBBHIIQ16sHHHH")


def chacha20(key: bytes, counter: int, nonce: bytes, data: bytes) -> bytes:
    """RFC 8439 §2.4: the library takes counter and nonce as one block of 16 bytes."""
    block = struct.pack("<I", counter) + nonce
    return Cipher(algorithms.ChaCha20(key, block), mode=None).encryptor().update(data)


def seal_again(key: bytes, nonce: bytes, text: bytes, aad: bytes) -> bytes:
    """RFC 8439 §2.8, made of its two halves."""
    sealed = chacha20(key, 1, nonce, text)
    padded = [part + bytes(-len(part) % 16) for part in (aad, sealed)]
    lengths = struct.pack("<QQ", len(aad), len(sealed))
    return sealed + Poly1305.generate_tag(chacha20(key, 0, nonce, bytes(32)), b"".join([*padded, lengths]))


def sessions() -> tuple[LinkSession, LinkSession]:
    fields = {"peer_id": b"P" * 16, "peer_stand": Stand(7, b"R" * 32), "cluster_id": b"C" * 16, "sid": b"S" * 16}
    a = LinkSession(**fields, side="A", send_key=b"k" * 32, recv_key=b"K" * 32)  # type: ignore[arg-type]
    b = LinkSession(**fields, side="B", send_key=b"K" * 32, recv_key=b"k" * 32)  # type: ignore[arg-type]
    return a, b


def test_a_second_implementation_reads_and_writes_our_frames() -> None:
    a, b = sessions()
    sealer, opener = seal.Sealer(a), seal.Opener(b)
    for number, size in enumerate((0, 1, 15, 16, 17, 1000, 70_000)):
        body = bytes(n & 0xFF for n in range(size))
        frame = bytes(sealer.seal(FrameType.KV, request_id=b"q" * 16, pos=number, layers=(2, 9), parts=[body]))
        header = struct.pack(
            "<2sBBBBHIIQ16sHHHH", b"MC", 1, 0x12, 0, 0, 0, size + 16, number, number, b"q" * 16, 2, 9, 0, 0
        )
        nonce = bytes(4) + struct.pack("<Q", number)
        again = header + seal_again(b"k" * 32, nonce, body, b"C" * 16 + b"S" * 16 + b"\0" + header)
        assert hmac.compare_digest(frame, again)
        assert bytes(opener.open_frame(again)[1]) == body


def test_what_the_second_implementation_seals_for_the_other_direction_is_refused() -> None:
    _, b = sessions()
    header = HEADER.pack(b"MC", 1, 0x12, 0, 0, 0, 20, 0, 0, bytes(16), 0, 0, 0, 0)
    frame = header + seal_again(b"k" * 32, bytes(12), b"text", b"C" * 16 + b"S" * 16 + b"\1" + header)
    with pytest.raises(SealError):
        seal.Opener(b).open_frame(frame)
