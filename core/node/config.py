"""Options with which a node is started."""

from __future__ import annotations

from pathlib import Path

import msgspec

from core.address import Place, is_loopback
from core.errors import UsageError
from core.events import ApiServed
from core.link.rekey_limits import KEY_LIMITS, KeyUse
from core.mac.prevent_sleep import WhenAwake
from core.settings import API_PORT, API_QUEUE, KEY_PLACE, LOOPBACK_HOST, Home, KeyPlace


class ApiOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the API."""

    host: str = LOOPBACK_HOST
    port: int = API_PORT
    queue: int = API_QUEUE  # number of requests that may wait
    origins: frozenset[str] = frozenset()  # web pages of these origins may use the API
    plain_http: bool = False  # other machines are served without TLS
    no_key: bool = False  # programs of this Mac need no key
    allow_load: bool = False  # a request may load another model
    port_option: str = "--api-port"  # the option that sets `port`, for error messages

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)

    @property
    def has_tls(self) -> bool:
        return not (self.is_loopback or self.plain_http)

    def check(self) -> None:
        if self.no_key and not self.is_loopback:
            what = f"At {self.host} any machine on the network could use the API without a key."
            raise UsageError(what, "Leave out --no-key, or serve at 127.0.0.1.")
        if self.queue < 0:
            raise UsageError("--queue must be 0 or more.")

    def served_at(self, port: int, fingerprint: str) -> ApiServed:
        scheme = "https" if self.has_tls else "http"
        host = f"[{self.host}]" if ":" in self.host else self.host
        warning = ""
        if not (self.is_loopback or self.has_tls):
            warning = "Text and keys travel unencrypted to other machines (--plain-http)."
        elif self.no_key:
            warning = "Every program on this Mac can use the API without a key (--no-key)."
        return ApiServed(url=f"{scheme}://{host}:{port}/v1", fingerprint=fingerprint, warning=warning)


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a node."""

    home: Home
    name: str
    host: str  # the address it listens on
    port: int
    budget_bytes: int  # memory for its worker
    memory_bytes: int = 0  # 0: this Mac's
    chip: str = ""  # of a simulated Mac; "": this Mac's
    model_roots: tuple[Path, ...] = ()
    multicast: bool = True
    group: str = ""
    peers: tuple[Place, ...] = ()  # nodes of other Macs
    key_limits: KeyUse = KEY_LIMITS  # of a link's key
    has_spare: bool = True  # keep a second worker ready while a model is loaded
    wires: bool = True  # keep loaded weights wired
    awake: WhenAwake = "loaded"
    api: ApiOptions = ApiOptions()
    serves: bool = False  # serve other programs from the start
    relays: bool = True  # relay requests to the Mac that leads, and accept relayed ones
    key: KeyPlace = KEY_PLACE  # where a new key of this Mac is stored
