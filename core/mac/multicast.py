"""Test whether this machine can send and receive multicast on Bonjour's group."""

from __future__ import annotations

import errno
import os
import socket
import time
from typing import Final, Literal

GROUP: Final = "224.0.0.251"
WAIT_S: Final = 1.0

Echo = Literal["heard", "silent", "denied", "failed"]


def echo(address: str, wait_s: float = WAIT_S) -> Echo:
    """Send a datagram to Bonjour's group from the interface with `address` and wait for it.

    Uses a port of our own and TTL 1, so it reaches no responder and stays on the local network. "denied": the system
    refused to send, as macOS does without the Local Network permission.
    """
    word = os.urandom(16)
    interface = socket.inet_aton(address)
    try:
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
        ):
            listener.bind(("", 0))
            listener.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(GROUP) + interface)
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, interface)
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
            sender.sendto(word, (GROUP, listener.getsockname()[1]))
            return "heard" if _receives(listener, word, wait_s) else "silent"
    except OSError as error:
        return "denied" if error.errno in (errno.EHOSTUNREACH, errno.EPERM, errno.EACCES) else "failed"


def _receives(listener: socket.socket, word: bytes, wait_s: float) -> bool:
    """Whether `word` arrives; other programs may send to that group and port too."""
    deadline = time.monotonic() + wait_s
    while (left := deadline - time.monotonic()) > 0:
        listener.settimeout(left)
        try:
            if listener.recv(64) == word:
                return True
        except TimeoutError:
            return False
    return False
