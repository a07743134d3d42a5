"""The roster: its format, rules, changes, transport and store. Import it from here outside `core.trust`."""

from core.trust.roster.acceptance import accept
from core.trust.roster.bundle import Bundle, Cluster, decode_bundle, encode_bundle, member_certificates
from core.trust.roster.changes import (
    add,
    affirm,
    demote,
    found,
    promote,
    recover,
    rename,
    revoke,
    rotate,
    set_recovery,
)
from core.trust.roster.forks import Fork
from core.trust.roster.format import (
    SUITE,
    Member,
    Revoked,
    Role,
    Roster,
    Stand,
    decode,
    encode,
    verify,
)
from core.trust.roster.store import RosterStore

__all__ = [
    "SUITE",
    "Bundle",
    "Cluster",
    "Fork",
    "Member",
    "Revoked",
    "Role",
    "Roster",
    "RosterStore",
    "Stand",
    "accept",
    "add",
    "affirm",
    "decode",
    "decode_bundle",
    "demote",
    "encode",
    "encode_bundle",
    "found",
    "member_certificates",
    "promote",
    "recover",
    "rename",
    "revoke",
    "rotate",
    "set_recovery",
    "verify",
]
