"""The `macluster` command. Exit status: 0 done, 1 failed, 2 wrong use."""

from __future__ import annotations

from core.mac.requirements import check_machine

check_machine()  # before what was built for one kind of machine is imported, and fails on another

import argparse  # noqa: E402
import asyncio  # noqa: E402
import os  # noqa: E402
import signal  # noqa: E402
import sys  # noqa: E402
from typing import Any, NoReturn  # noqa: E402

from core.errors import MaclusterError, UsageError  # noqa: E402
from core.text import clean_text  # noqa: E402
from tui.cli import launch  # noqa: E402


def main() -> None:
    """Entry of the `macluster` script."""
    # the screen should be there soon, and to know all other commands takes a while
    args, others = launch.parser().parse_known_args()
    if others:
        from core.node.options import api_arguments
        from tui.cli.parser import parser
        from tui.cli.serve import is_to_serve

        args = parser().parse_args()
        if args.command == "node":
            _become_node(args, *sys.argv[sys.argv.index("node") + 1 :])
        if args.command == "serve" and is_to_serve(args):
            _become_node(args, "--serve", "--tell", "json" if args.json else "text", *api_arguments(args))
    try:
        status = asyncio.run(_run(args))
    except MaclusterError as error:
        status = print_error(error)
    except KeyboardInterrupt:
        status = 130
    except BrokenPipeError:
        # whoever read this, such as `head`, has enough; Python would complain again when it flushes at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        status = 1
    sys.exit(status)


def print_error(error: MaclusterError) -> int:
    """Print why a command came to nothing; its exit status."""
    print(clean_text(f"macluster: {error}"), file=sys.stderr)
    return 2 if isinstance(error, UsageError) else 1


def _become_node(args: argparse.Namespace, *given: str) -> NoReturn:
    """This process goes on as the node, so that a process list shows it as `python -m core.node`."""
    options = [*launch.node_options(launch.preferences_of(args)), *given]
    os.environ["PYTHONSAFEPATH"] = "1"
    os.execv(sys.executable, [sys.executable, "-m", "core.node", "--home", str(args.home), *options])


def show_defect(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """As asyncio does, but for what anyio does when a word of the node comes just as nobody waits for it any more: it
    has the loop set a future (`add_reader`) that was cancelled at the same moment.
    """
    is_anyio = context["message"].startswith("Exception in callback Future.set_result(")
    if not (is_anyio and isinstance(context.get("exception"), asyncio.InvalidStateError)):
        loop.default_exception_handler(context)


async def _run(args: argparse.Namespace) -> int:
    """SIGTERM ends a command as Ctrl+C does, so that what it started is taken down in order."""
    task = asyncio.current_task()
    assert task is not None
    terminated = asyncio.Event()

    def terminate() -> None:
        terminated.set()
        task.cancel()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, terminate)
    loop.set_exception_handler(show_defect)
    try:
        status: int = await args.run(args)
        return status
    except asyncio.CancelledError:
        if terminated.is_set():
            return 143
        raise


if __name__ == "__main__":
    main()
