"""Tunnels over real links: bytes arrive at the other Mac, and the end of one tunnel ends its whole group."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from time import monotonic
from typing import Final

import pytest

from core.errors import LinkError, LinkLost
from core.link import tunnel as module
from core.link.data_link import Sender
from core.link.data_plane import DataLink, accept, dial, listen
from core.link.frames import FrameType
from core.link.rekey_limits import KEY_LIMITS, KeyUse
from core.link.tunnel import Tunnel, Tunnels, local_pair
from tests.support.macs import cluster, mac

HOST: Final = "127.0.0.1"
WAIT_S: Final = 20.0
BINDING: Final = b"t" * 32


class EndReasons:
    """Callback that keeps the reasons of a tunnel's end."""

    def __init__(self) -> None:
        self.why: list[LinkError] = []
        self._came = threading.Event()

    def __call__(self, why: LinkError) -> None:
        self.why.append(why)
        self._came.set()

    def once(self) -> LinkError:
        assert self._came.wait(WAIT_S)
        (why,) = self.why
        return why


class TunnelPair:
    """Tunnels from mac 0, which dials, to mac 1; `ends` are the sockets of the two programs that use one."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._pool = stack.enter_context(ThreadPoolExecutor(4))
        self.told = EndReasons(), EndReasons()
        self.groups = Tunnels(self.told[0]), Tunnels(self.told[1])
        for group in self.groups:
            stack.callback(group.close)
        cluster(2)

    def tunnel(self, limits: KeyUse = KEY_LIMITS) -> tuple[socket.socket, socket.socket]:
        """Add a tunnel; returns its ends."""
        there, back = (self._stack.enter_context(listen(HOST)) for _ in range(2))
        making, ends = [], []
        for number, group in enumerate(self.groups):
            ours, theirs = local_pair()
            theirs.settimeout(WAIT_S)
            ends.append(self._stack.enter_context(theirs))
            into, out = (there, back) if number == 0 else (back, there)
            link = _dialled if number == 0 else _accepted
            making.append(self._pool.submit(group.add, _maker(ours, link, into, out, number == 0, limits)))
        for made in making:
            made.result(WAIT_S)
        return ends[0], ends[1]


def _maker(
    local: socket.socket,
    link: Callable[[socket.socket], DataLink],
    into: socket.socket,
    out: socket.socket,
    dials: bool,
    limits: KeyUse,
) -> Callable[[Callable[[LinkError], None]], Tunnel]:
    return lambda lost: Tunnel(
        local, lambda: link(into).sender(), lambda: link(out).receiver(), dials=dials, limits=limits, lost=lost
    )


def _dialled(at: socket.socket) -> DataLink:
    port = at.getsockname()[1]
    return dial(
        HOST, port, identity=mac(0), cluster=cluster(2), peer_id=mac(1).device_id, binding=BINDING, timeout_s=WAIT_S
    )


def _accepted(at: socket.socket) -> DataLink:
    return accept(at, identity=mac(1), cluster=cluster(2), peer_id=mac(0).device_id, binding=BINDING, timeout_s=WAIT_S)


def read(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = sock.recv(count - len(data))
        assert part
        data += part
    return data


@pytest.fixture
def between() -> Iterator[TunnelPair]:
    with ExitStack() as stack:
        yield TunnelPair(stack)


def test_what_goes_in_comes_out_over_many_keys(between: TunnelPair) -> None:
    near, far = between.tunnel(KeyUse(frames=3, bytes=1 << 40, age_s=1e9))
    for size in (1, module.CHUNK_BYTES, 5 * module.CHUNK_BYTES + 7):
        said = os.urandom(size)
        for one, other in ((near, far), (far, near)):
            sending = threading.Thread(target=one.sendall, args=(said,))
            sending.start()
            assert read(other, size) == said
            sending.join()
    assert between.told[0].why == between.told[1].why == []


@pytest.mark.parametrize("number", [0, 1])
def test_with_one_tunnel_all_of_a_group_end_and_that_is_told_once(between: TunnelPair, number: int) -> None:
    first, second = between.tunnel(), between.tunnel()
    first[number].close()
    for one in second:
        assert one.recv(1) == b""
    assert first[1 - number].recv(1) == b""
    assert all(told.once().what for told in between.told)


def test_a_group_that_is_closed_tells_only_the_other_end(between: TunnelPair) -> None:
    one, two = between.tunnel(), between.tunnel()
    between.groups[0].close()
    assert between.told[1].once().what
    assert [end.recv(1) for end in (*one, *two)] == [b""] * 4
    assert between.told[0].why == []


def test_a_tunnel_that_comes_late_ends_with_the_others(between: TunnelPair) -> None:
    between.tunnel()
    between.groups[0].close()
    between.told[1].once()
    with pytest.raises(LinkLost, match="ended meanwhile"):
        between.tunnel()


def test_a_frame_that_does_not_belong_there_ends_it(between: TunnelPair) -> None:
    near, far = between.tunnel()
    sender = between.groups[0]._made[0]._links[Sender]
    assert isinstance(sender, Sender)
    sender.send(FrameType.PING)
    assert "came through a tunnel" in between.told[1].once().what
    assert far.recv(1) == near.recv(1) == b""


def test_closing_does_not_wait_for_a_link_that_is_being_made_anew(
    between: TunnelPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CLOSE_S", 0.1)
    near, _ = between.tunnel(KeyUse(frames=2, bytes=1 << 40, age_s=1e9))
    dials, go_on = threading.Event(), threading.Event()
    tunnel = between.groups[0]._made[0]
    make = tunnel._open_sender

    def slow() -> Sender:
        dials.set()
        assert go_on.wait(WAIT_S)
        return make()

    tunnel._open_sender = slow
    for _ in range(8):
        near.sendall(b"x" * module.CHUNK_BYTES)
        if dials.wait(0.2):
            break
    assert dials.is_set()
    began = monotonic()
    between.groups[0].close()
    assert monotonic() - began < WAIT_S / 2
    go_on.set()
    between.told[1].once()
    for thread in tunnel._threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()
