"""The options of a node, for `macluster node` and `python -m core.node`; imports nothing heavy."""

from __future__ import annotations

import argparse
from pathlib import Path

from core.address import Place, checked_place, parse_place
from core.errors import UsageError
from core.mac.prevent_sleep import WHEN_AWAKE
from core.settings import API_PORT, API_QUEUE, CONTROL_PORT, KEY_PLACE, LOOPBACK_HOST


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of a node."""
    parser.add_argument("--home", type=Path, default=argparse.SUPPRESS, help="state folder (default ~/.macluster)")
    parser.add_argument("--name", default="", help="name shown on other Macs (default: the one that this Mac has)")
    parser.add_argument("--host", default="0.0.0.0", help="address to listen on (default: all interfaces)")
    parser.add_argument("--port", type=int, default=CONTROL_PORT, help="port for other nodes (default %(default)s)")
    parser.add_argument("--budget", type=float, metavar="GB", help="memory that the worker may use, in GB")
    parser.add_argument("--chip", default="", help=argparse.SUPPRESS)
    parser.add_argument(
        "--models",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="look here, not in the Hugging Face cache",
    )
    parser.add_argument(
        "--peer",
        type=_place,
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="where another Mac's node listens; it is looked for until it is found, also without Bonjour",
    )
    parser.add_argument(
        "--no-spare-worker", action="store_true", help="keep no second worker ready (takes about 50 MB)"
    )
    parser.add_argument(
        "--no-wired-memory", action="store_true", help="let macOS page out what is loaded (much slower, but no stall)"
    )
    parser.add_argument(
        "--awake",
        choices=WHEN_AWAKE,
        default="loaded",
        help="when this Mac does not fall asleep: while it holds or copies a model (default), always, never",
    )
    where = "where the key of this Mac is kept if it is made now (default %(default)s); `macluster trust key` moves it"
    parser.add_argument("--key", choices=("file", "keychain"), default=KEY_PLACE, help=where)
    parser.add_argument("--serve", action="store_true", help="serve other programs too")
    add_api_options(parser, "--api-host", "--api-port")
    parser.add_argument("--tell", choices=("text", "json"), help=argparse.SUPPRESS)  # by `macluster serve`
    parser.add_argument("--no-multicast", action="store_true", help="do not use Bonjour")
    parser.add_argument(
        "--group", default="", help="find only Macs that were started with this word, as those of a demo"
    )
    parser.add_argument("--discard", action="store_true", help="remove the state folder when the node ends")
    parser.add_argument("--until-eof", action="store_true", help="end when standard input ends")


def add_api_options(parser: argparse.ArgumentParser, host: str, port: str) -> None:
    """How other programs are served: `host` and `port` are names of options."""
    where = "at which address of this Mac other programs are served (default %(default)s)"
    parser.add_argument(host, dest="api_host", default=LOOPBACK_HOST, metavar="HOST", help=where)
    at = "at which port (default %(default)s)"
    parser.add_argument(port, dest="api_port", type=int, default=API_PORT, metavar="PORT", help=at)
    many = "so many of their requests may wait (default %(default)s)"
    parser.add_argument("--queue", type=int, default=API_QUEUE, metavar="N", help=many)
    pages = "pages of this site may ask, too, such as http://localhost:3000; can be repeated"
    parser.add_argument("--allow-origin", action="append", default=[], metavar="ORIGIN", help=pages)
    parser.add_argument("--no-key", action="store_true", help="programs of this Mac need no key")
    by_name = "a request that names another model of this Mac's disk has it loaded, by the default options"
    parser.add_argument("--allow-load", action="store_true", help=by_name)
    alone = "answer no program by another Mac that leads, nor other Macs' programs by this one"
    parser.add_argument("--no-relay", action="store_true", help=alone)
    clear = "no TLS at other addresses than this Mac's own: text and keys travel unencrypted"
    parser.add_argument("--plain-http", action="store_true", help=clear)


def api_arguments(args: argparse.Namespace) -> list[str]:
    """The same, as a node takes them."""
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
