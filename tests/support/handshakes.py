"""Both ends of a link's handshake."""

from __future__ import annotations

import secrets

from core.events import Level
from core.link.session import Acceptor, Dialler, Kind, LinkSession
from core.trust.roster.bundle import Cluster
from core.trust.roster.format import Member
from tests.support.macs import cluster, mac, member_of


def member(number: int, level: Level = "paired") -> Member:
    return member_of(mac(number), 2, level=level)


def party(me: int, other: int, *, kind: Kind = Kind.DATA, to: Cluster | None = None) -> tuple[Dialler, Acceptor]:
    arguments = (mac(me), to or cluster(3), member(other), kind, mac(other).certificate_der, secrets.token_bytes)
    return Dialler(*arguments), Acceptor(*arguments)


def agree(kind: Kind = Kind.DATA) -> tuple[LinkSession, LinkSession]:
    dialler, acceptor = party(0, 1, kind=kind)[0], party(1, 0, kind=kind)[1]
    auth, a = dialler.finish(acceptor.reply(dialler.hello))
    return a, acceptor.finish(auth)
