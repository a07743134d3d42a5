"""Runs the command inside the test's process: starting a process for each takes longer than the command."""

from __future__ import annotations

import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from core.errors import MaclusterError
from tui.cli.main import print_error
from tui.cli.parser import parser


class CommandResult(NamedTuple):
    """Exit status and output of a command."""

    returncode: int
    stdout: str
    stderr: str


async def macluster(home: Path, *words: str) -> CommandResult:
    """Run `macluster` with these arguments and no terminal, one command at a time."""
    out, err = StringIO(), StringIO()
    with patch.object(sys, "stdin", StringIO()), redirect_stdout(out), redirect_stderr(err):
        try:
            args = parser().parse_args(["--home", str(home), *words])
            status = await args.run(args) or 0
        except SystemExit as ended:
            status = int(ended.code or 0)
        except MaclusterError as error:
            status = print_error(error)
    return CommandResult(status, out.getvalue(), err.getvalue())
