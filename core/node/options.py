"""The options of a node, for `macluster node` and `python -m core.node`; imports nothing heavy."""

from __future__ import annotations

import argparse
from pathlib import Path

from core.address import Place, checked_place, parse_place
from core.errors import UsageError
from core.mac.prevent_sleep import WHEN_AWAKE
from core.settings import API_PORT, API_QUEUE, CONTROL_PORT, KEY_PLACE, LOOPBACK_HOST


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--home", type=Path, default=argparse.SUPPRESS, help="state folder (default ~/.macluster)")
    parser.add_argument("--name", default="", help="name shown on other Macs (default: this Mac's name)")
    parser.add_argument("--host", default="0.0.0.0", help="address to listen on (default: all interfaces)")
    parser.add_argument("--port", type=int, default=CONTROL_PORT, help="port for other nodes (default %(default)s)")
    memory = "memory for layers and caches, in GB (default: automatic)"
    parser.add_argument("--budget", type=float, metavar="GB", help=memory)
    parser.add_argument("--chip", default="", help=argparse.SUPPRESS)
    models = "folder with models, instead of the Hugging Face cache; can be repeated"
    parser.add_argument("--models", type=Path, action="append", default=[], metavar="DIR", help=models)
    peers = "address of another Mac's node, for networks without Bonjour; can be repeated"
    parser.add_argument("--peer", type=_place, action="append", default=[], metavar="HOST:PORT", help=peers)
    spare = "keep no second worker process ready (saves about 50 MB)"
    parser.add_argument("--no-spare-worker", action="store_true", help=spare)
    paged = "let macOS page out model weights (much slower, but no stall)"
    parser.add_argument("--no-wired-memory", action="store_true", help=paged)
    awake = "keep this Mac awake: while it holds or copies a model (loaded, the default), always, or never"
    parser.add_argument("--awake", choices=WHEN_AWAKE, default="loaded", help=awake)
    where = "where a new device key is stored (default: keychain on a Mac, file elsewhere)"
    parser.add_argument("--key", choices=("file", "keychain"), default=KEY_PLACE, help=where)
    parser.add_argument("--serve", action="store_true", help="serve the API for other programs")
    add_api_options(parser, "--api-host", "--api-port")
    parser.add_argument("--tell", choices=("text", "json"), help=argparse.SUPPRESS)  # used by `macluster serve`
    parser.add_argument("--no-multicast", action="store_true", help="do not use Bonjour")
    group = "find only Macs started with the same word, such as those of a demo"
    parser.add_argument("--group", default="", help=group)
    parser.add_argument("--discard", action="store_true", help="remove the state folder when the node ends")
    parser.add_argument("--until-eof", action="store_true", help="end when standard input ends")


def add_api_options(parser: argparse.ArgumentParser, host: str, port: str) -> None:
    """Add the options of the API for other programs; `host` and `port` are the names of two of them."""
    where = "address of the API (default %(default)s)"
    parser.add_argument(host, dest="api_host", default=LOOPBACK_HOST, metavar="HOST", help=where)
    at = "port of the API (default %(default)s)"
    parser.add_argument(port, dest="api_port", type=int, default=API_PORT, metavar="PORT", help=at)
    many = "how many requests may queue (default %(default)s)"
    parser.add_argument("--queue", type=int, default=API_QUEUE, metavar="N", help=many)
    pages = "allow requests from pages of this site, such as http://localhost:3000; can be repeated"
    parser.add_argument("--allow-origin", action="append", default=[], metavar="ORIGIN", help=pages)
    parser.add_argument("--no-key", action="store_true", help="programs on this Mac need no key")
    by_name = "let a request load another model of this Mac's disk by naming it"
    parser.add_argument("--allow-load", action="store_true", help=by_name)
    alone = "don't relay requests to another Mac, or accept relayed ones"
    parser.add_argument("--no-relay", action="store_true", help=alone)
    clear = "use no TLS beyond loopback: text and keys travel unencrypted"
    parser.add_argument("--plain-http", action="store_true", help=clear)


def api_arguments(args: argparse.Namespace) -> list[str]:
    given = ["--api-host", args.api_host, "--api-port", str(args.api_port), "--queue", str(args.queue)]
    given += [part for origin in args.allow_origin for part in ("--allow-origin", origin)]
    return given + [
        f"--{name.replace('_', '-')}"
        for name in ("no_key", "allow_load", "no_relay", "plain_http")
        if getattr(args, name)
    ]


def _place(text: str) -> Place:
    try:
        return checked_place(*parse_place(text))
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
