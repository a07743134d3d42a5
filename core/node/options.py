"""The options of a node, for `macluster node` and `python -m core.node`; imports nothing heavy."""

from __future__ import annotations

import argparse
from pathlib import Path

from core.address import Place, checked_place, parse_place
from core.errors import UsageError
from core.mac.chip import computer_name
from core.settings import API_PORT, CONTROL_PORT


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of a node."""
    parser.add_argument("--home", type=Path, default=argparse.SUPPRESS, help="state folder (default ~/.macluster)")
    parser.add_argument("--name", default=computer_name(), help="name shown on other Macs (default %(default)s)")
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
    parser.add_argument("--serve", action="store_true", help="serve other programs of this Mac too")
    port = "where on this Mac they are served (default %(default)s)"
    parser.add_argument("--api-port", type=int, default=API_PORT, metavar="PORT", help=port)
    parser.add_argument("--no-multicast", action="store_true", help="do not use Bonjour")
    parser.add_argument("--discard", action="store_true", help="remove the state folder when the node ends")
    parser.add_argument("--until-eof", action="store_true", help="end when standard input ends")


def _place(text: str) -> Place:
    try:
        return checked_place(*parse_place(text))
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
