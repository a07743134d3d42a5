"""The `macluster` command. Exit status: 0 done, 1 failed, 2 wrong use."""

from __future__ import annotations

from core.mac.requirements import check_machine

check_machine()  # before imports that fail on the wrong kind of machine

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
    """Run the `macluster` command, such as `macluster status --json`."""
    # the screen opens without importing the other commands
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
        # the reader of our output, such as `head`, has closed it; keep Python from complaining again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        status = 1
    sys.exit(status)


def print_error(error: MaclusterError) -> int:
    """Print why a command failed; return its exit status."""
    print(clean_text(f"macluster: {error}"), file=sys.stderr)
    return 2 if isinstance(error, UsageError) else 1


def _become_node(args: argparse.Namespace, *given: str) -> NoReturn:
    """Replace this process by the node, so that a process list shows `python -m core.node`."""
    options = [*launch.node_options(launch.preferences_of(args)), *given]
    os.environ["PYTHONSAFEPATH"] = "1"
    os.execv(sys.executable, [sys.executable, "-m", "core.node", "--home", str(args.home), *options])


def show_defect(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report a defect as asyncio does, except a race in anyio: it sets a future that was just cancelled."""
    is_anyio = context["message"].startswith("Exception in callback Future.set_result(")
    if not (is_anyio and isinstance(context.get("exception"), asyncio.InvalidStateError)):
        loop.default_exception_handler(context)


async def _run(args: argparse.Namespace) -> int:
    """Run a command; SIGTERM ends it as Ctrl+C does, so that its processes end in order."""
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
        status: int | None = await args.run(args)
        return status or 0
    except asyncio.CancelledError:
        if terminated.is_set():
            return 143
        raise


if __name__ == "__main__":
    main()
