"""All commands of `macluster` and their options."""

from __future__ import annotations

import argparse
import platform
from pathlib import Path
from typing import get_args

from core.errors import UsageError
from core.events import BalanceChoice, ParallelismChoice, Topology, WireType
from core.node.options import add_options
from core.plan.topology import parse_span
from core.settings import DEFAULT_ROWS, KV_BITS
from core.version import program_version
from tui.cli import (
    answer_options,
    bench,
    completions,
    evaluation,
    launch,
    models,
    pairing,
    restart,
    serve,
    sessions,
    speed_test,
    status,
    trace,
    transfers,
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
from tui.cli.output import Command, print_facts, prints_facts, table

DEMO_PROMPT = "How does macluster split a model?"


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        reported = ", ".join(f"{name} {version(name)}" for name in ("mlx", "mlx-lm", "textual"))
        print(f"macluster {program_version()} ({reported}, Python {platform.python_version()})")
        parser.exit()


def parser() -> argparse.ArgumentParser:
    odd = "If the terminal looks broken after a crash, type `reset`."
    what = "Turns the Macs in your home into one machine for language models."
    top = argparse.ArgumentParser(prog="macluster", description=what, epilog=odd, parents=[launch.parser()])
    top.add_argument("--version", action=_Version, nargs=0, help="print the versions of macluster and its libraries")
    sub = top.add_subparsers(dest="command", metavar="COMMAND")
    _demo(sub.add_parser("demo", help="simulate three Macs on this one"))
    node = sub.add_parser("node", help="run this Mac's node without a screen")
    add_options(node)
    serve.add_options(sub.add_parser("serve", help="serve other programs, and manage their keys"))
    prints_facts(sub.add_parser("status", help="show this Mac, its peers and the loaded model"), status.status)
    prints_facts(sub.add_parser("peers", help="list the Macs that were found"), status.peers)
    pair = sub.add_parser("pair", help="pair with another Mac: each person types the digits shown on the other screen")
    pair.add_argument("mac", metavar="MAC|HOST:PORT", nargs="?", default="", help="the Mac (default: any that asks)")
    prints_facts(pair, pairing.pair)
    proves = "check everything that can be checked on this Mac, as a report for an issue"
    verify_command.add_options(sub.add_parser("verify", help=proves))
    doctor_command.add_options(sub.add_parser("doctor", help="find what is wrong with this Mac or its network"))
    restart.add_options(sub.add_parser("restart", help="start this Mac's node again, such as after an update"))
    prints_facts(sub.add_parser("update", help="print the commands that update macluster"), restart.update)
    service_command.add_options(sub.add_parser("service", help="run the node from boot on"))
    trust_commands.add_options(sub.add_parser("trust", help="show and change how far each Mac is trusted"))
    listed = sub.add_parser("models", help="list models on the Macs' disks or on the hub, and how they fit")
    listed.add_argument("--known", action="store_true", help="list models on the hub that no Mac has, best fit first")
    prints_facts(listed, models.models)
    models.add_trim(listed)
    download = sub.add_parser("download", help="download a model from the Hugging Face hub")
    transfers.add_download(download)
    prints_facts(download, transfers.download)
    copy = sub.add_parser("copy", help="copy a model to the disks of paired Macs")
    transfers.add_copy(copy)
    prints_facts(copy, transfers.copy)
    moved = "show downloads and copies; pause, resume, stop or limit them"
    transfers.add_transfers(sub.add_parser("transfers", help=moved))
    named = "list the keys of the screens, and their names for config.toml"
    prints_facts(sub.add_parser("keys", help=named), keys)
    plan = sub.add_parser("plan", help="show which Mac would hold which layers")
    _model(plan, plan_command.plan)
    plan.add_argument("--macs", metavar="GB,…", help="memory budgets of imaginary Macs, the head first; needs no node")
    plan.add_argument("--parts", action="store_true", help="also list the bytes of each file that each Mac would read")
    load = sub.add_parser("load", help="load a model over the paired Macs")
    _model(load, load_command.load)
    _verify(load)
    takes = "although this Mac serves another Mac's plan, whose answers break"
    load.add_argument("--take-over", action="store_true", help=takes)
    prints_facts(sub.add_parser("unload", help="free the memory on every Mac"), load_command.unload)
    run = sub.add_parser("run", help="chat in the terminal, or print one answer")
    _model(run, run_command.run)
    asked = run.add_mutually_exclusive_group()
    asked.add_argument("-p", "--prompt", help="print one answer to this prompt; - reads it from standard input")
    go_on = "continue an interrupted answer: the newest, or the one whose id starts with ID"
    asked.add_argument("--continue", dest="go_on", nargs="?", const="", metavar="ID", help=go_on)
    run.add_argument("--session", metavar="NAME", help="continue this saved conversation")
    run.add_argument("--url", help="ask the API of another Mac instead of this Mac's node")
    run.add_argument("--key", help="with --url: the API key")
    its = "with --url https://…: the certificate to trust (that Mac's ~/.macluster/api-certificate/api.crt)"
    run.add_argument("--certificate", type=Path, metavar="FILE", help=its)
    run.add_argument("--keep-nothing", action="store_true", help="store nothing of this conversation on this Mac")
    answer_options.add_options(run)
    sessions.add_options(sub.add_parser("session", help="list, save, load and delete saved conversations"))
    speed = sub.add_parser("speedtest", help="measure the link between two Macs")
    speed.add_argument("source", metavar="FROM", nargs="?", default="", help="name or id (default: this Mac)")
    speed.add_argument("target", metavar="TO", help="name or id of the other Mac")
    prints_facts(speed, speed_test.speedtest)
    traced = sub.add_parser("trace", help="record what every stage does during answers, for Perfetto")
    trace.add_options(traced)
    prints_facts(traced, trace.trace)
    shells = "print shell completions for zsh, bash or fish"
    completions.add_options(sub.add_parser("completions", help=shells), parser)
    uninstall.add_options(sub.add_parser("uninstall", help="remove everything macluster created on this Mac"))
    evaluation.add_options(sub.add_parser("eval", help="run an lm-eval task over the ring and in one process"))
    bench.add_options(sub.add_parser("bench", help="measure speed against something run next to it"))
    _home_everywhere(top)
    return top


def _home_everywhere(command: argparse.ArgumentParser) -> None:
    """Accept `--home` after every command, too."""
    for action in command._actions:
        for each in action.choices.values() if isinstance(action, argparse._SubParsersAction) else ():
            if "--home" not in each._option_string_actions:
                each.add_argument("--home", type=Path, default=argparse.SUPPRESS, help=argparse.SUPPRESS)
            _home_everywhere(each)


def _demo(demo: argparse.ArgumentParser) -> None:
    # options before the command count too
    launch.add_appearance_options(demo, default=argparse.SUPPRESS)
    demo.add_argument("--macs", type=int, help="number of Macs to simulate (default: one per budget)")
    demo.add_argument("--memory", default="64,32,16", metavar="GB,…", help="memory of the Macs, the head first")
    model = demo.add_mutually_exclusive_group()
    model.add_argument("--model", type=Path, metavar="DIR", help="a model directory (default: the demo model)")
    small = "use SmolLM2-135M-Instruct, a small real model, downloaded from the hub once (270 MB)"
    model.add_argument("--real", action="store_true", help=small)
    disks = "shared: all Macs use one disk; remote: only the head has the model and the others copy their layers"
    demo.add_argument("--weights", choices=("shared", "remote"), default="shared", help=disks)
    _how(demo)
    demo.add_argument("--prompt", default=None, help=f"the question asked without a screen (default: {DEMO_PROMPT!r})")
    demo.add_argument("--serve", type=_port, metavar="PORT", help="serve other programs on this port until Ctrl+C")
    demo.add_argument("--key", help="with --serve: the API key")
    demo.add_argument("--no-multicast", action="store_true", help="use direct addresses instead of Bonjour")
    _verify(demo)
    answer_options.add_options(demo)
    prints_facts(demo, demo_command.demo)
    demo.set_defaults(default_prompt=DEMO_PROMPT)


def _model(command: argparse.ArgumentParser, run: Command) -> None:
    command.add_argument("model", metavar="MODEL", help="a name from `macluster models`, or a directory")
    left_out = "Macs that hold no layers, by name or id"
    command.add_argument("--without", type=_macs, default=(), metavar="MAC,…", help=left_out)
    reader = "a Mac that holds all layers and reads long prompts, by name or id; auto: only if it is faster"
    command.add_argument("--prefill", default="off", metavar="MAC|auto|off", help=f"{reader} (default %(default)s)")
    _how(command)
    prints_facts(command, run)


def _verify(command: argparse.ArgumentParser) -> None:
    compares = "compare with the whole model, read again on the head if it fits there"
    command.add_argument("--verify", action="store_true", help=compares)


def _how(command: argparse.ArgumentParser) -> None:
    ring = "who embeds and samples (default: private, other Macs see hidden states only; single with one Mac)"
    command.add_argument("--topology", choices=get_args(Topology), help=ring)
    shared = "how the Macs share the model: a part of every layer each (tp), layers of their own (pp), or one Mac"
    command.add_argument("--parallelism", choices=get_args(ParallelismChoice), help=shared)
    cable = "with tp or auto: exchange sums over RDMA, which is not encrypted on the cable"
    command.add_argument("--rdma", action="store_true", help=cable)
    paced = "divide layers by memory, by measured speed, or by speed if that is clearly faster (auto)"
    wire = "dtype of hidden states between Macs (default: the model's own); bfloat16 and int8 may change answers"
    command.add_argument("--wire", choices=get_args(WireType), help=wire)
    draft = "a smaller model with the same tokenizer that drafts tokens on this Mac, for one request at a time"
    command.add_argument("--draft", metavar="MODEL", help=draft)
    command.add_argument("--balance", choices=get_args(BalanceChoice), default="memory", help=paced)
    owners = "layers of each Mac, this Mac first, then by budget: A:B (both included) or A:output"
    command.add_argument("--layers", type=_spans, default=(), metavar="0:9,10:19,…", help=owners)
    tokens = "context in tokens (default: by memory, at least 65536 where that fits)"
    command.add_argument("--context", type=int, help=tokens)
    command.add_argument("--kv-bits", type=int, choices=KV_BITS, help="bits of the KV cache (default: not quantised)")
    rows = "requests that run at once (default %(default)s); they share the context"
    command.add_argument("--rows", type=int, default=DEFAULT_ROWS, metavar="N", help=rows)
    mirror = "keep a copy of all Macs' KV caches on the head, so that a lost Mac costs no prefill"
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


async def keys(args: argparse.Namespace) -> None:
    from tui.control.chosen_keys import ACTIONS
    from tui.control.preferences import config_file

    facts = {name: {"keys": action.keys.split(","), "does": action.title} for name, action in ACTIONS.items()}
    rows = [(name, action.keys, action.title) for name, action in ACTIONS.items()]
    how = f'\nTo change keys: [keys] in {config_file()}, such as  models = "ctrl+k,f7"'
    print_facts(args, facts, [*table(("action", "keys", "does"), rows, left=(0, 1, 2)), how])
