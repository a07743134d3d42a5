"""A real node, and Macs whose keys the tests hold: members of its cluster that turned against it, and strangers."""

from __future__ import annotations

import secrets
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

import psutil
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from zeroconf import IPVersion
from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

from core.events import LogLine
from core.link.control_link import ControlLink, dial_control
from core.link.frames import HEADER, TAG_BYTES, FrameType
from core.link.seal import Opener, Sealer
from core.link.session import REPLY_BYTES, Dialler, Kind, LinkSession
from core.link.tls import client_context, server_context
from core.node.base.node_message import to_frame
from core.node.peers.discovery import SERVICE_TYPE
from core.node.peers.messages import Bye
from core.settings import Home
from core.trust.identity import Identity
from core.trust.roster.bundle import Cluster
from core.trust.roster.format import Roster
from core.trust.roster.store import RosterStore
from tests.support.macs import bundle, certificate, chain, cluster, mac
from tui.cli.watch import Watch

HOST = "127.0.0.1"
SIZE = 4
START_S = 120.0


class Cast(NamedTuple):
    """Numbers of `mac`: the Mac with the lower device id dials, so members on both sides of the victim are needed."""

    low: int
    victim: int
    high: int
    other: int


@cache
def cast() -> Cast:
    """The Macs by their parts; mac 0 is the admin, in any part."""
    return Cast(*sorted(range(SIZE), key=lambda number: mac(number).device_id))


class Victim(NamedTuple):
    """A node process, its folder, its port, and its identity."""

    process: subprocess.Popen[bytes]
    home: Home
    port: int
    me: Identity

    @property
    def rss_bytes(self) -> int:
        """Resident memory of the node."""
        return int(psutil.Process(self.process.pid).memory_info().rss)

    @property
    def is_alive(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    async def dial(self, number: int, *, port: int = 0, knows: Cluster | None = None) -> ControlLink:
        """An honest dial of a member; `port` may lead through a relay. Raises LinkError."""
        return await dial_control(
            HOST,
            port or self.port,
            identity=mac(number),
            cluster=knows or cluster(SIZE),
            peer_id=self.me.device_id,
            timeout_s=60.0,
        )


@contextmanager
def running_victim(
    number: int,
    *options: str,
    rosters: tuple[Roster, ...] | None = None,
    certificates: tuple[bytes, ...] = (),
) -> Iterator[Victim]:
    """Run `mac(number)` as a node in the cluster of all four, unless `rosters` says otherwise; an empty one means
    unpaired.

    `certificates`: those of further members.
    """
    folder = Path(tempfile.mkdtemp(prefix="mc-"))
    try:
        home = Home(folder / "v")
        home.root.mkdir(mode=0o700)
        shutil.copytree(mac(number).key_path.parent, home.identity)
        if rosters := chain(SIZE) if rosters is None else rosters:
            leaves = [*(mac(n).certificate_der for n in range(SIZE)), *certificates]
            RosterStore(home.rosters).adopt(bundle(rosters, *leaves))
        command = [
            *(sys.executable, "-m", "core.node", "--home", str(home.root), "--name", "victim"),
            *("--host", HOST, "--port", "0", "--budget", "8", "--chip", "M1", "--until-eof", *options),
        ]
        complaints = folder / "stderr"
        with complaints.open("wb") as stderr:
            node = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=stderr)
        try:
            yield Victim(node, home, port_of(node.pid), mac(number))
            assert node.poll() is None, "the node died"
        finally:
            _end(node)
        said = complaints.read_text()
        assert said == "", said  # an unexpected error would be here
    finally:
        shutil.rmtree(folder)


def _end(node: subprocess.Popen[bytes]) -> None:
    assert node.stdin
    node.stdin.close()
    try:
        node.wait(60)
    except subprocess.TimeoutExpired:
        node.kill()
        node.wait()


def port_of(pid: int) -> int:
    """The port where a process listens, as soon as it does."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        for connection in psutil.Process(pid).net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN:
                return int(connection.laddr.port)
        time.sleep(0.05)
    raise AssertionError(f"process {pid} listens nowhere")


class Observer(Watch):
    """Events as on the victim's own screen; enter it before the attack."""

    def __init__(self, victim: Victim) -> None:
        super().__init__(victim.home)
        self._victim = victim

    async def __aenter__(self) -> Observer:
        await super().__aenter__()
        await self.attached(START_S, lambda: self._victim.is_alive)
        return self

    async def links(self) -> int:
        """The number of control links of the node that have ended: it logs a line for each.

        An honest link of our own goes last, so that everything before it has been seen; such links do not count.
        """
        reason = f"fence {len(self.seen)}"
        link = await self._victim.dial(cast().low)
        await link.send(*to_frame(Bye(reason=reason)))
        await link.recv()
        link.close()
        await link.wait_closed()
        await self.until(lambda _: any(reason in text for text in self._ends()), 240, "The end of the honest link")
        return sum("fence" not in text for text in self._ends())

    def reasons(self, words: str) -> int:
        """How many links ended with this text in the reason."""
        return sum(text.endswith(f": {words}") for text in self._ends())

    def _ends(self) -> list[str]:
        return [e.text for e in self.seen if isinstance(e, LogLine) and " is gone: " in e.text]


# ---- attackers' tools


def reckless(context: ssl.SSLContext) -> ssl.SSLContext:
    """The same context without any check of the other end."""
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@cache
def member_client(number: int) -> ssl.SSLContext:
    """Context with a member's own leaf, for dials without a check of the server."""
    return reckless(client_context(mac(number), cluster(SIZE)))


@cache
def member_server(number: int) -> ssl.SSLContext:
    """Context with a member's own leaf, for a server without a check of the client."""
    return reckless(server_context(mac(number), cluster(SIZE)))


class Stranger:
    """A key that is in no roster, with a leaf in any name, signed by itself or by `signer`."""

    def __init__(self, name: str = "", issuer: str = "", signer: Ed25519PrivateKey | None = None) -> None:
        self._key = Ed25519PrivateKey.generate()
        self.leaf = certificate(self._key, name=name, issuer=issuer, signer=signer)

    def context(self, protocol: int, *, chain: tuple[bytes, ...] = ()) -> ssl.SSLContext:
        """A TLS context that shows this leaf and accepts any other."""
        pem = self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        context = reckless(ssl.SSLContext(protocol))
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(pem + "".join(ssl.DER_cert_to_PEM_cert(der) for der in (self.leaf, *chain)))
            file.flush()
            context.load_cert_chain(file.name)
        return context


def signing_key(number: int) -> Ed25519PrivateKey:
    """The device key of a member, for misuse."""
    return mac(number)._key


@contextmanager
def call(port: int, context: ssl.SSLContext | None = None, host: str = HOST) -> Iterator[socket.socket]:
    """A blocking connection to `port`, inside TLS if there is a context."""
    with socket.create_connection((host, port), timeout=60) as plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is None:
            yield plain
        else:
            with context.wrap_socket(plain, server_hostname="macluster") as sock:
                yield sock


def exactly(sock: socket.socket, length: int) -> bytes:
    """Exactly `length` bytes. Raises EOFError if the other end closes before."""
    data = b""
    while len(data) < length:
        piece = sock.recv(length - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def last_words(sock: socket.socket) -> bytes:
    """All bytes from the other end until it closes, as it must within 10 seconds."""
    said = b""
    try:
        while piece := sock.recv(65536):
            said += piece
    except TimeoutError:
        raise
    except OSError:
        pass
    return said


@contextmanager
def serving(serve: Callable[[socket.socket], None], context: ssl.SSLContext | None = None) -> Iterator[int]:
    """Port of an attacker's server: `serve` handles each connection, inside TLS if there is a context.

    Its own errors are ignored.
    """
    listener = socket.create_server((HOST, 0))
    threads: list[threading.Thread] = []
    served: list[socket.socket] = []

    def one(sock: socket.socket) -> None:
        sock.settimeout(60)
        try:
            if context is not None:
                sock = context.wrap_socket(sock, server_side=True)
            served.append(sock)
            serve(sock)
        except (OSError, EOFError):
            pass
        finally:
            sock.close()

    def accept() -> None:
        with suppress(OSError):
            while True:
                threads.append(threading.Thread(target=one, args=(listener.accept()[0],)))
                threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        accepting.join()
        listener.close()
        for sock in served:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()


def dialler_at(sock: socket.socket, victim: Victim, number: int) -> Dialler:
    """The inner handshake of a member by hand, over its TLS connection to any server."""
    assert isinstance(sock, ssl.SSLSocket)
    peer = cluster(SIZE).roster.member(victim.me.device_id)
    assert peer
    shown = sock.getpeercert(binary_form=True) or b""
    return Dialler(mac(number), cluster(SIZE), peer, Kind.CONTROL, shown, secrets.token_bytes)


def handshake(sock: socket.socket, victim: Victim, number: int) -> tuple[LinkSession, bytes]:
    """Make an honest handshake; returns the session, and every byte that was sent for it."""
    dialler = dialler_at(sock, victim, number)
    sock.sendall(dialler.hello)
    auth, session = dialler.finish(exactly(sock, REPLY_BYTES))
    hello = bytes(Sealer(session).seal(FrameType.HELLO))
    sock.sendall(auth + hello)
    assert Opener(session).open_frame(exactly(sock, HEADER.size + TAG_BYTES))[0].type is FrameType.HELLO_ACK
    return session, dialler.hello + auth + hello


HIDDEN = 96
DEEP = b"\x91" * 60_000 + b"\xc0"


@asynccontextmanager
async def advertised(device_id: str, name: bytes, port: int) -> AsyncIterator[None]:
    """A Bonjour record with any content."""
    rogue = AsyncZeroconf(interfaces=[HOST], ip_version=IPVersion.V4Only)
    info = AsyncServiceInfo(
        SERVICE_TYPE,
        f"{device_id}.{SERVICE_TYPE}",
        addresses=[socket.inet_aton(HOST)],
        port=port,
        properties={b"id": device_id.encode(), b"name": name, b"v": b"0.1.0"},
        server=f"{device_id}.local.",
    )
    try:
        await rogue.async_register_service(info)
        yield
    finally:
        await rogue.async_close()
