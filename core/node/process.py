"""The process of a node: options, signals and exit."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import resource
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from typing import NoReturn

import msgspec

from core.errors import MaclusterError, NodeError, UsageError
from core.events import ApiServed
from core.mac.chip import computer_name
from core.mac.memory import default_budget, physical_bytes
from core.mac.open_file_limit import raise_descriptor_limit
from core.node.base.home_lock import home_lock
from core.node.base.last_run import recording_run
from core.node.base.stderr_log import limit_stderr_log
from core.node.config import ApiOptions, NodeConfig
from core.node.options import add_options
from core.node.service import Node
from core.settings import GB, HOME_FILES, STAY, Home, default_home, hub_cache
from core.text import clean_name
from core.trust.key_storage import drop_keys

STOP_S = 10.0
RESTART = -1  # result of `serve`: the node should start again


def config_from(args: argparse.Namespace) -> NodeConfig:
    physical = int(args.budget * GB) if args.chip else physical_bytes()
    same = {name: getattr(args, name) for name in ("host", "port", "chip", "group", "awake", "key")}
    return NodeConfig(
        **same,
        home=Home(args.home.expanduser().absolute()),
        name=clean_name(args.name or computer_name()) or "mac",
        budget_bytes=int(args.budget * GB) if args.budget else default_budget(physical),
        memory_bytes=physical,
        model_roots=tuple(p.expanduser().absolute() for p in args.models) or (hub_cache(),),
        multicast=not args.no_multicast,
        has_spare=not args.no_spare_worker,
        wires=not args.no_wired_memory,
        peers=tuple(args.peer),
        api=_api_from(args),
        serves=args.serve,
        relays=not args.no_relay,
    )


def _api_from(args: argparse.Namespace) -> ApiOptions:
    options = ApiOptions(
        **{name: getattr(args, name) for name in ("queue", "plain_http", "no_key", "allow_load")},
        host=args.api_host,
        port=args.api_port,
        origins=frozenset(args.allow_origin),
        port_option="--port" if args.tell else "--api-port",
    )
    options.check()
    return options


def _print_served(served: ApiServed, form: str | None) -> None:
    if form == "json":
        print(msgspec.json.encode(msgspec.structs.asdict(served)).decode(), flush=True)
    elif form == "text":
        sealed = f", certificate SHA-256 {served.fingerprint}" if served.fingerprint else ""
        print(f"Other programs are served at {served.url}{sealed}", flush=True)
        if served.warning:
            print(f"Warning: {served.warning}", flush=True)


def check_discardable(home: Home) -> None:
    """Raises UsageError if the folder holds files that are not a node's."""
    if not home.root.is_dir() or home.identity.exists():
        return
    if foreign := sorted({path.name for path in home.root.iterdir()} - HOME_FILES):
        what = f"{home.root} isn't a macluster home: it holds {foreign[0]}. --discard would remove it."
        raise UsageError(what, "Name a new folder with --home.")


@contextlib.contextmanager
def discarded(home: Home) -> Iterator[None]:
    """Remove a simulated Mac's key and folder at the end, and the common folder with the last one."""
    try:
        yield
    finally:
        drop_keys(home.identity)
        shutil.rmtree(home.root, ignore_errors=True)
        with contextlib.suppress(OSError):
            home.root.parent.rmdir()


async def serve(config: NodeConfig, *, until_eof: bool = False, tell: str | None = None) -> int:
    """Run a node; if this Mac changes its key, run another one with it. Returns the exit status or RESTART; a failure
    is recorded and printed before anything else.
    """
    loop = asyncio.get_running_loop()
    try:
        with recording_run(config.home):
            is_due = await _run_nodes(config, loop, until_eof=until_eof, tell=tell)
    except Exception as error:
        return _failed(error)
    finally:
        loop.call_later(STOP_S, os._exit, 1)  # asyncio would wait for a hanging thread of the executor
    return RESTART if is_due else 0


async def _run_nodes(config: NodeConfig, loop: asyncio.AbstractEventLoop, *, until_eof: bool, tell: str | None) -> bool:
    """Returns whether the process should start again."""
    on_served = partial(_print_served, form=tell)
    node, stopped = Node(config, on_served), False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        loop.call_later(STOP_S, os._exit, 1)
        node.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    if until_eof:
        threading.Thread(target=_stop_at_eof, args=(loop, stop), daemon=True).start()
    while (again := await node.run()) and not stopped:
        node = Node(again, on_served)
    return node.parts.restarting.is_due and not stopped


def _start_again() -> NoReturn:
    """Become a node of what is installed now, with the same options, process id and streams."""
    sys.stdout.flush()
    try:
        os.execv(sys.executable, [sys.executable, "-m", "macluster", "node", *sys.argv[1:]])
    except OSError as error:
        raise NodeError(f"{sys.executable} can't be started: {error.strerror}.", "Install macluster again.") from error


def _failed(error: Exception) -> int:
    """Print why the node ended; returns the exit status."""
    if not isinstance(error, MaclusterError):
        traceback.print_exception(error)
    else:
        print(f"macluster: {error}", file=sys.stderr, flush=True)
    return 2 if isinstance(error, UsageError) else 1


def _stop_at_eof(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
    """Stop when the starter of this node has ended, unless its last word was STAY."""
    said = b""
    try:
        while piece := os.read(0, 4096):
            said = piece
    finally:
        if said != STAY:
            loop.call_soon_threadsafe(stop)


def main() -> None:
    """Entry of `python -m core.node`."""
    parser = argparse.ArgumentParser(prog="python -m core.node", description="The node of this Mac, without a screen.")
    parser.set_defaults(home=default_home().root)
    add_options(parser)
    args = parser.parse_args()
    raise_descriptor_limit()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file of it or its workers would hold words and keys
    try:
        config = config_from(args)
        if args.discard:
            check_discardable(config.home)
        limit_stderr_log(config.home)
        leftover = discarded(config.home) if args.discard else contextlib.nullcontext()
        with home_lock(config.home), leftover:
            status = asyncio.run(serve(config, until_eof=args.until_eof, tell=args.tell))
            if status == RESTART:
                _start_again()
    except Exception as error:
        status = _failed(error)
    sys.stdout.flush()
    os._exit(status)  # the interpreter would wait for a hanging thread of the executor
