"""HELLO and AUTH of the inner session, and pairing messages: fixed sizes, checked before anything is signed."""

from __future__ import annotations

import random

from core.errors import HandshakeError, PairingError
from core.link.session import AUTH_BYTES, HELLO, REPLY_BYTES, Acceptor, Dialler, Kind
from core.trust.pairing import P1_BYTES, Offer, PairingAnswer
from core.trust.roster.joining import decode_card
from tests.fuzz.target import Target
from tests.support.macs import cluster, mac, member_of

_dice = random.Random(0)


def _party(me: int, other: int) -> tuple[Dialler, Acceptor]:
    peer = member_of(mac(other), 2)
    arguments = (mac(me), cluster(3), peer, Kind.DATA, mac(other).certificate_der, _dice.randbytes)
    return Dialler(*arguments), Acceptor(*arguments)


def attack(data: bytes) -> None:
    """Receive bytes in one turn, chosen by the first byte; only an honest peer gets a usable answer."""
    turn, said = data[:1], data[1:]
    try:
        match turn:
            case b"a":
                reply = _party(1, 0)[1].reply(said)
                assert len(reply) == REPLY_BYTES
            case b"b":
                _party(0, 1)[0].finish(said)
                raise AssertionError("a reply to another hello was taken")
            case b"c":
                acceptor = _party(1, 0)[1]
                acceptor.reply(_party(0, 1)[0].hello)
                acceptor.finish(said)
                raise AssertionError("an AUTH of another session was taken")
            case _:
                _pair(turn, said)
    except (HandshakeError, PairingError):
        return


def _pair(turn: bytes, said: bytes) -> None:
    match turn:
        case b"p":
            PairingAnswer(mac(1), "mini", _dice.randbytes, said)
        case b"q":
            offer = Offer(mac(0), "studio", _dice.randbytes)
            offer.reveal(said)
        case b"r":
            PairingAnswer(mac(1), "mini", _dice.randbytes, said[:P1_BYTES]).check(said[P1_BYTES:])
        case _:
            decode_card(said)


def target() -> Target:
    """Honest messages of each turn."""
    dialler, acceptor = _party(0, 1)[0], _party(1, 0)[1]
    reply = acceptor.reply(dialler.hello)
    auth = dialler.finish(reply)[0]
    offer = Offer(mac(0), "studio", _dice.randbytes)
    answer = PairingAnswer(mac(1), "mini", _dice.randbytes, offer.commit)
    p3 = offer.reveal(answer.reveal)[0]
    assert (len(dialler.hello), len(auth)) == (HELLO.size, AUTH_BYTES)
    seeds = [b"a" + dialler.hello, b"b" + reply, b"c" + auth, b"p" + offer.commit, b"q" + answer.reveal]
    return Target("hello", attack, [*seeds, b"r" + offer.commit + p3, b"s" + bytes(27) + mac(0).certificate_der])
