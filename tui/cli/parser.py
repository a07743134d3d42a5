"""All commands of `macluster` and their options."""

from __future__ import annotations

import argparse
import platform
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import get_args

from core.errors import UsageError
from core.events import BalanceChoice, ParallelismChoice, Topology, WireType
from core.node.options import add_options
from core.plan.topology import parse_span
from core.settings import DEFAULT_CONTEXT, DEFAULT_ROWS, KV_BITS
from tui.cli import (
    answer_options,
    bench,
    completions,
    evaluation,
    keys,
    launch,
    models,
    pairing,
    serve,
    sessions,
    speed_test,
    status,
    trace,
    transfers,
    trim,
    uninstall,
)
from tui.cli import demo as demo_command
from tui.cli import doctor as doctor_command
from tui.cli import load as load_command
from tui.cli import plan as plan_command
from tui.cli import run as run_command
from tui.cli import service as service_command
from tui.cli import trust as trust_commands
from tui.cli import verify as verify_command

DEMO_PROMPT = "How does macluster split a model?"

Command = Callable[[argparse.Namespace], Awaitable[int]]


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        reported = ", ".join(f"{name} {version(name)}" for name in ("mlx", "mlx-lm", "textual"))
        print(f"macluster {version('macluster')} ({reported}, Python {platform.python_version()})")
        parser.exit()


def parser() -> argparse.ArgumentParser:
    """All commands and options."""
    odd = "If the screen was killed (kill -9) and the terminal is odd, type `reset`."
    what = "The Macs in a home as one machine for language models."
    top = argparse.ArgumentParser(prog="macluster", description=what, epilog=odd, parents=[launch.parser()])
    top.add_argument("--version", action=_Version, nargs=0, help="the versions of macluster and of what it runs on")
    sub = top.add_subparsers(dest="command", metavar="COMMAND")
    _demo(sub.add_parser("demo", help="three Macs simulated on this one"))
    node = sub.add_parser("node", help="the node of this Mac, without a screen")
    add_options(node)
    serve.add_options(sub.add_parser("serve", help="the node of this Mac, for other programs; and their keys"))
    _fact(sub.add_parser("status", help="this Mac, its peers, the plan"), status.status)
    _fact(sub.add_parser("peers", help="the Macs that were seen"), status.peers)
    pair = sub.add_parser("pair", help="let another Mac in: each person types the digits of the other screen")
    pair.add_argument("mac", metavar="MAC|HOST:PORT", nargs="?", default="", help="which one (default: any that asks)")
    _fact(pair, pairing.pair)
    proves = "everything that can be proved on this very Mac, as a report for an issue"
    verify_command.add_options(sub.add_parser("verify", help=proves), _fact)
    doctor_command.add_options(sub.add_parser("doctor", help="why no other Mac is found, and what to do"), _fact)
    service_command.add_options(sub.add_parser("service", help="the node from boot on: install, remove, status"), _fact)
    trust_commands.add_options(sub.add_parser("trust", help="how far each Mac is trusted, and how to change it"), _fact)
    listed = sub.add_parser("models", help="models on the disks of the Macs, or known on the hub, and how they fit")
    models.add_models(listed)
    _fact(listed, models.models)
    trim.add_trim(listed, _fact)
    download = sub.add_parser("download", help="a model of the Hugging Face hub to this Mac's disk")
    transfers.add_download(download)
    _fact(download, transfers.download)
    copy = sub.add_parser("copy", help="a model from disk to disk of the paired Macs")
    transfers.add_copy(copy)
    _fact(copy, transfers.copy)
    moved = "what is on its way to disks, and to pause, resume, stop or limit it"
    transfers.add_transfers(sub.add_parser("transfers", help=moved), _fact)
    _fact(sub.add_parser("keys", help="the keys of the screen, and what to call them in config.toml"), keys.keys)
    plan = sub.add_parser("plan", help="who would own which layers")
    _model(plan, plan_command.plan)
    plan.add_argument("--macs", metavar="GB,…", help="budgets of imaginary Macs, the head first; needs no node")
    plan.add_argument("--parts", action="store_true", help="also which bytes of which files each Mac would read")
    load = sub.add_parser("load", help="split a model over the paired Macs")
    _model(load, load_command.load)
    _verify(load)
    _fact(sub.add_parser("unload", help="free the memory on every Mac"), load_command.unload)
    run = sub.add_parser("run", help="a conversation in the terminal, or one answer to standard output")
    _model(run, run_command.run)
    asked = run.add_mutually_exclusive_group()
    asked.add_argument("-p", "--prompt", help="one answer to this; - reads it from standard input")
    go_on = "go on with an answer that was cut off: the newest, or the one whose id begins so"
    asked.add_argument("--continue", dest="go_on", nargs="?", const="", metavar="ID", help=go_on)
    run.add_argument("--session", metavar="NAME", help="go on with this saved conversation")
    run.add_argument("--url", help="ask this API, of another Mac, in the place of this Mac's node")
    run.add_argument("--key", help="with --url: the key that it needs")
    its = "with --url https://…: its certificate (that Mac's ~/.macluster/api-certificate/api.crt)"
    run.add_argument("--certificate", type=Path, metavar="FILE", help=its)
    run.add_argument("--keep-nothing", action="store_true", help="nothing of it stays on this Mac")
    answer_options.add_options(run)
    sessions.add_options(
        sub.add_parser("session", help="conversations kept on this Mac: list, save, load, delete"), _fact
    )
    speed = sub.add_parser("speedtest", help="how fast the link between two Macs is")
    speed.add_argument("source", metavar="FROM", nargs="?", default="", help="name or id (default: this Mac)")
    speed.add_argument("target", metavar="TO", help="name or id of the other Mac")
    _fact(speed, speed_test.speedtest)
    traced = sub.add_parser("trace", help="what every stage does while answers run, phase by phase; for Perfetto")
    trace.add_options(traced)
    _fact(traced, trace.trace)
    shells = "what lets zsh, bash or fish complete commands"
    completions.add_options(sub.add_parser("completions", help=shells), parser)
    uninstall.add_options(sub.add_parser("uninstall", help="take away what macluster made on this Mac"), _fact)
    evaluation.add_options(sub.add_parser("eval", help="what lm-eval says of the ring, and of one process"), _fact)
    bench.add_options(sub.add_parser("bench", help="measure speed against something run next to it"), _fact)
    _home_everywhere(top)
    return top


def _home_everywhere(command: argparse.ArgumentParser) -> None:
    """The state folder may be named behind every command, too."""
    for action in command._actions:
        for each in action.choices.values() if isinstance(action, argparse._SubParsersAction) else ():
            if "--home" not in each._option_string_actions:
                each.add_argument("--home", type=Path, default=argparse.SUPPRESS, help=argparse.SUPPRESS)
            _home_everywhere(each)


def _demo(demo: argparse.ArgumentParser) -> None:
    # what stands before the command counts too
    launch.add_appearance_options(demo, default=argparse.SUPPRESS)
    demo.add_argument("--macs", type=int, help="how many Macs to simulate (default: one a budget)")
    demo.add_argument("--memory", default="64,32,16", metavar="GB,…", help="budgets, the head first")
    demo.add_argument("--model", type=Path, metavar="DIR", help="a model directory (default: the demo model)")
    demo.add_argument(
        *("--weights",),
        choices=("shared", "remote"),
        default="shared",
        help="shared: one disk; remote: only the head has the model, the others copy what they hold",
    )
    _how(demo)
    demo.add_argument("--prompt", default=None, help=f"ask this without a screen (default: {DEMO_PROMPT!r})")
    demo.add_argument("--serve", type=_port, metavar="PORT", help="serve other programs there, until Ctrl+C")
    demo.add_argument("--key", help="with --serve: the key that they need")
    demo.add_argument("--no-multicast", action="store_true", help="do not use Bonjour: direct addresses")
    _verify(demo)
    answer_options.add_options(demo)
    _fact(demo, demo_command.demo)
    demo.set_defaults(default_prompt=DEMO_PROMPT)


def _fact(command: argparse.ArgumentParser, run: Command) -> None:
    command.add_argument("--json", action="store_true", help="print one JSON value")
    command.set_defaults(run=run)


def _model(command: argparse.ArgumentParser, run: Command) -> None:
    command.add_argument("model", metavar="MODEL", help="a name from `macluster models`, or a directory")
    left_out = "Macs that are to hold no layers, by name or id"
    command.add_argument("--without", type=_macs, default=(), metavar="MAC,…", help=left_out)
    beside = "a Mac without layers that reads long prompts, by name or id; auto: one that is known to be quicker"
    command.add_argument("--prefill", default="off", metavar="MAC|auto|off", help=f"{beside} (default %(default)s)")
    _how(command)
    _fact(command, run)


def _verify(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--verify", action="store_true", help="compare the ring with the whole model on the head, where it has room"
    )


def _how(command: argparse.ArgumentParser) -> None:
    """The options of `core.requests.plans.PlanRequest`."""
    ring = "what other Macs may see (default: private, hidden states only; single where there is one Mac)"
    command.add_argument("--topology", choices=get_args(Topology), help=ring)
    shared = "how to share it: each Mac a part of every layer (tp) or layers of its own (pp), this Mac all, or the best"
    command.add_argument("--parallelism", choices=get_args(ParallelismChoice), help=shared)
    cable = "with tp or auto: add up over RDMA, which is not encrypted on the cable"
    command.add_argument("--rdma", action="store_true", help=cable)
    paced = "divide the layers by memory, by measured speed within it, or by speed where it is worth it (auto)"
    wire = "as what hidden states travel (default: as the model computes them); bfloat16 and int8 may change answers"
    command.add_argument("--wire", choices=get_args(WireType), help=wire)
    guesses = "a smaller model of the same tokenizer, on this Mac, that guesses what follows where one person asks"
    command.add_argument("--draft", metavar="MODEL", help=guesses)
    command.add_argument("--balance", choices=get_args(BalanceChoice), default="memory", help=paced)
    owners = "who has which layers, this Mac first, then by budget: A:B, both included, or A:output"
    command.add_argument("--layers", type=_spans, default=(), metavar="0:9,10:19,…", help=owners)
    command.add_argument("--context", type=int, default=DEFAULT_CONTEXT, help="tokens of context (default %(default)s)")
    command.add_argument("--kv-bits", type=int, choices=KV_BITS, help="keep keys and values in this many bits")
    rows = "requests that run at the same time (default %(default)s); they share the context"
    command.add_argument("--rows", type=int, default=DEFAULT_ROWS, metavar="N", help=rows)
    mirror = "keep what all Macs hold of the conversation here too, for when one is lost"
    command.add_argument("--mirror", action="store_true", help=mirror)


def _port(text: str) -> int:
    found = int(text)
    if not 0 < found < 1 << 16:
        raise argparse.ArgumentTypeError("must be 1 to 65535")
    return found


def _macs(text: str) -> tuple[str, ...]:
    return tuple(mac.strip() for mac in text.split(",") if mac.strip())


def _spans(text: str) -> tuple[str, ...]:
    try:
        return tuple(str(parse_span(span)) for span in text.split(","))
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
