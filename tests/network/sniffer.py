"""Records all packets of its network namespace's loopback while the ranks of two groups reduce.

One group is sealed, one is in the open. Prints one JSON object for the test.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from tests.benches.comms import NUMBER, ReduceTurn, plain_group, plain_rank, play, sealed_group

TURN: Final = ReduceTurn(tokens=2, reduces=4, hidden=512)
AF_PACKET: Final = 17  # only Linux has it
ALL: Final = 0x0003
ROOM: Final = 1 << 24
# a constant vector of bfloat16 in bytes, doubled with every reduce
CANARIES: Final = [struct.pack("<f", NUMBER * 2**power)[2:] * 32 for power in range(TURN.reduces)]


@contextmanager
def recording() -> Iterator[bytearray]:
    """Record every packet, headers included."""
    heard = bytearray()
    with socket.socket(AF_PACKET, socket.SOCK_RAW, socket.ntohs(ALL)) as tap:
        tap.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, ROOM)
        tap.bind(("lo", 0))
        tap.settimeout(0.2)
        over = threading.Event()

        def listen() -> None:
            while True:
                try:
                    heard.extend(tap.recv(1 << 17))
                except TimeoutError:
                    if over.is_set():
                        return

        thread = threading.Thread(target=listen)
        thread.start()
        try:
            yield heard
        finally:
            over.set()
            thread.join()


def main() -> None:
    told = {}
    for name, group in (("sealed", sealed_group), ("plain", partial(plain_group, plain_rank))):
        with recording() as heard, group() as ranks:
            play(ranks, TURN)
        told[name] = {"bytes": len(heard), "canaries": sum(canary in heard for canary in CANARIES)}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
