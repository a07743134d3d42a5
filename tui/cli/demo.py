"""`macluster demo`: simulates Macs on this one, with their own identities, folders, nodes, workers and real links."""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec

from core.address import parse_place
from core.demo import DEMO_MODEL
from core.errors import LinkError, MaclusterError, NodeError, PairingError, UsageError, error_from
from core.events import PairingChanged, PlanLoaded
from core.models.files.checked_files import name_of
from core.requests.plans import LoadRequest
from core.requests.trust import Address, Digits, PairingOffer
from core.settings import API_QUEUE, LOOPBACK_HOST, Home
from core.text import clean_text
from core.trust.api_keys import ApiKeys
from tui.cli.answer_options import request_of
from tui.cli.answering import answer
from tui.cli.launch import home_of, preferences_of
from tui.cli.load import loaded
from tui.cli.output import Facts, print_progress
from tui.cli.plan import plan_lines, plan_options, proof_lines
from tui.cli.status import disk_facts, trust_line
from tui.cli.watch import Watch
from tui.cli.what_if import budgets_of
from tui.client import NodeClient, check
from tui.own_node import start_node

NAMES = (
    *("studio", "mbp", "mini", "air", "cube", "book", "tower", "spare"),
    *("attic", "den", "desk", "garage", "kitchen", "lab", "loft", "shelf"),
)
CHIPS = ("M2 Ultra", "M3 Max", "M4 Pro", "M2", "M1", "M1 Pro", "M1 Max", "M1") * 2
BONJOUR_S = 8.0
START_S = 30.0


class DemoConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The Macs to simulate, and the model to load over them."""

    budgets_gb: tuple[float, ...]  # memory of each Mac, the head first
    model: Path | None = None  # a model folder; None: the demo model
    load: LoadRequest = LoadRequest(model="")  # how to load it; its model name is ignored
    multicast: bool = True  # find each other by Bonjour
    has_spare: bool = True  # keep a spare worker ready on each Mac
    api_ports: tuple[int, ...] = ()  # ports of the API, the head's first
    api_queue: int = API_QUEUE  # how many requests may queue
    remote_weights: bool = False  # only the head has the model on its disk


def demo_budgets(memory: str, macs: int | None) -> tuple[float, ...]:
    """Parse `memory` ("64,32,16") into `macs` budgets, repeating the last; raises UsageError."""
    budgets = budgets_of(memory, "--memory")
    count = len(budgets) if macs is None else macs
    if not 1 <= count <= len(NAMES):
        raise UsageError(f"--macs {count} is not between 1 and {len(NAMES)}.")
    return (budgets + (budgets[-1],) * count)[:count]


class Demo:
    """Started nodes. They end with this process, however it ends, since they watch a pipe that only it holds."""

    def __init__(self, config: DemoConfig, say: Callable[[str], None]) -> None:
        if not 1 <= len(config.budgets_gb) <= len(NAMES):
            raise UsageError(f"The demo simulates 1 to {len(NAMES)} Macs, not {len(config.budgets_gb)}.")
        self._config = config
        self._say = say
        self._root = Path(tempfile.mkdtemp(prefix="macluster-"))
        self._nodes: list[subprocess.Popen[bytes]] = []
        self._group = f"demo-{secrets.token_hex(8)}"
        self.pulled: tuple[str, ...] = ()  # names of the unplugged Macs, oldest first
        self.budgets = config.budgets_gb  # in GB, the head first
        self.watches: list[Watch] = []
        self._stack = AsyncExitStack()
        self.found_by = "Bonjour on the loopback interface"

    @property
    def home(self) -> Home:
        return self._home(0)

    @property
    def homes(self) -> tuple[Home, ...]:
        return tuple(self._home(index) for index in range(len(self.budgets)))

    @property
    def head(self) -> Watch:
        return self.watches[0]

    def pid_of(self, index: int) -> int:
        return self._nodes[index].pid

    async def start(self) -> None:
        """Start the nodes and wait until they answer."""
        self._say(f"Starting {len(self.budgets)} simulated Macs …")
        model = (self._config.model or DEMO_MODEL).expanduser().absolute()
        self.model = str(model)
        for index in range(len(self.budgets)):
            self._nodes.append(self._launch(index, model))
        for index in range(len(self._nodes)):
            watch = await self._stack.enter_async_context(Watch(self._home(index)))
            self.watches.append(watch)
            await watch.attached(START_S, partial(self._lives, index))

    async def join(self) -> None:
        if len(self._nodes) > 1:
            await self.find_each_other()
            for other in self.watches[1:]:
                await pair(self.head, other)
            await asyncio.gather(*(w.until(self._all_linked, START_S, "Linking the nodes") for w in self.watches))

    async def load(self) -> PlanLoaded:
        """Load the model over all nodes; retry once if a busy machine starved a node."""
        request = msgspec.structs.replace(self._config.load, model=self.model)
        try:
            return await loaded(self.head, request)
        except NodeError:
            problem = self.head.now.plan_problem
            if not problem or not isinstance(error_from(problem), LinkError):
                raise
        await self.head.until(self._all_linked, START_S, "Linking the nodes")
        return await loaded(self.head, request)

    async def pull(self, name: str) -> None:
        """Unplug a Mac: its links are cut and its node ends, without a message."""
        node = self._nodes[NAMES.index(name)]
        node.kill()
        self.pulled += (name,)
        await asyncio.to_thread(node.wait)

    async def plug(self, name: str) -> None:
        """Plug a Mac in again, with its own key and its last known addresses."""
        index = NAMES.index(name)
        places = [peer.address for watch in self.watches for peer in watch.now.peers if peer.is_self]
        peers = [word for at, place in enumerate(places) if at != index for word in ("--peer", place)]
        self.pulled = tuple(other for other in self.pulled if other != name)
        self._nodes[index] = await asyncio.to_thread(self._launch, index, Path(self.model), peers)

    async def stop_watching(self) -> None:
        """Stop following events; the nodes continue."""
        await self._stack.aclose()

    async def stop(self) -> None:
        """End the nodes and their workers, and remove their state."""
        await self.stop_watching()
        for node in self._nodes:
            if node.stdin:
                node.stdin.close()
        for node in self._nodes:
            try:
                await asyncio.to_thread(node.wait, 8)
            except subprocess.TimeoutExpired:
                node.kill()
                node.wait()
        shutil.rmtree(self._root, ignore_errors=True)

    def _lives(self, index: int) -> bool:
        return self._nodes[index].poll() is None

    def _home(self, index: int) -> Home:
        return Home(self._root / NAMES[index])

    def _launch(self, index: int, model: Path, peers: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        models = self._home(index).models if index and self._config.remote_weights else model
        return start_node(
            self._home(index),
            *("--name", NAMES[index], "--host", LOOPBACK_HOST, "--port", "0", "--chip", CHIPS[index]),
            *("--budget", str(self.budgets[index]), "--models", str(models)),
            *("--discard", "--key", "file", "--group", self._group, *peers),
            *(() if self._config.multicast else ("--no-multicast",)),
            *(() if self._config.has_spare else ("--no-spare-worker",)),
            *(
                part
                for port in self._config.api_ports[index : index + 1]
                for part in ("--serve", "--api-port", str(port), "--queue", str(self._config.api_queue))
            ),
        )

    async def find_each_other(self) -> None:
        """Make the nodes find each other by Bonjour, or else by direct addresses."""
        others = len(self.watches) - 1

        def sees_all(watch: Watch) -> bool:
            return sum(not p.is_self for p in watch.now.peers) >= others

        if self._config.multicast:
            try:
                await asyncio.gather(*(w.until(sees_all, BONJOUR_S, "Bonjour") for w in self.watches))
            except MaclusterError:
                self._say("Bonjour is not available on this machine: using direct addresses.")
            else:
                return
        self.found_by = "direct addresses"
        own = [next(p for p in w.now.peers if p.is_self) for w in self.watches]
        for watch in self.watches:
            for peer in own:
                if peer.device_id not in {p.device_id for p in watch.now.peers}:
                    host, port = parse_place(peer.address)
                    await watch.client.know(Address(device_id=peer.device_id, host=host, port=port))

    def _all_linked(self, watch: Watch) -> bool:
        linked = [p for p in watch.now.peers if p.state == "connected" and p.trust == "paired" and p.budget_bytes]
        return len(linked) == len(self._nodes)


@asynccontextmanager
async def simulated(config: DemoConfig) -> AsyncIterator[Demo]:
    """Macs with the model loaded over all of them, until the block ends."""
    demo = Demo(config, lambda _: None)
    try:
        await demo.start()
        await demo.join()
        await demo.load()
        yield demo
    finally:
        await demo.stop()


async def pair(one: Watch, other: Watch) -> None:
    """Pair two nodes as two people would, each typing the other's digits; raises PairingError."""
    marks = [len(one.seen), len(other.seen)]
    window = await other.client.open_pairing()
    await one.client.offer_pairing(PairingOffer(host="127.0.0.1", port=window.port))
    both = list(zip((one, other), marks, strict=True))
    shown = [await _pairing(watch, mark, "compare") for watch, mark in both]
    await one.client.type_digits(Digits(digits=shown[1].digits))
    await other.client.type_digits(Digits(digits=shown[0].digits))
    for watch, mark in both:
        await _pairing(watch, mark, "paired")


async def _pairing(watch: Watch, mark: int, state: str) -> PairingChanged:
    def found() -> list[PairingChanged]:
        return [e for e in watch.seen[mark:] if isinstance(e, PairingChanged) and e.state in (state, "failed")]

    await watch.until(lambda _: bool(found()), START_S, "Pairing")
    event = found()[0]
    if event.problem:
        raise PairingError(event.problem.what, event.problem.fix)
    return event


async def demo(args: argparse.Namespace) -> int:
    """Run the demo: with the UI in a terminal, else one answer as text or JSON."""
    model = args.model
    if args.real:
        from tui.cli.real_model import real_model

        model = await real_model()
    config = DemoConfig(
        budgets_gb=demo_budgets(args.memory, args.macs),
        model=model,
        load=LoadRequest(model="", verify=args.verify, **plan_options(args)),
        multicast=not args.no_multicast,
        has_spare=preferences_of(args).spare_worker,
        api_ports=(args.serve, *[0] * (len(NAMES) - 1)) if args.serve else (),
        remote_weights=args.weights == "remote",
    )
    check(config.load)
    headless = args.json or args.prompt is not None or not (sys.stdin.isatty() and sys.stdout.isatty())
    demo = Demo(config, print_progress)
    try:
        if args.serve is not None:
            return await _demo_serve(demo, args)
        if headless:
            return await _demo_answer(demo, args)
        return await _demo_tui(demo, args)
    finally:
        await demo.stop()


async def _demo_answer(demo: Demo, args: argparse.Namespace) -> int:
    prompt = args.prompt if args.prompt is not None else args.default_prompt
    request = request_of(prompt, args)
    await demo.start()
    await demo.join()
    loaded = await demo.load()
    plan = demo.head.now.plan
    if plan is None:
        raise NodeError("The plan was unloaded before the answer began.", "The log of the node says more.")
    if not args.json:
        print(f"Found by {demo.found_by}; {len(plan.stages)} Mac(s), paired; loaded in {loaded.seconds:.1f} s")
        print("\n".join([*plan_lines(plan), *proof_lines(loaded)]))
        print(trust_line(demo.head.now.trust, plan))
        print(f"\n> {clean_text(prompt)}", flush=True)
    disks: dict[str, Facts] = {}
    if args.weights == "remote":
        names = {peer.device_id: peer.name for peer in demo.head.now.peers}
        disks = {names[mac]: facts for mac, facts in disk_facts(await demo.head.client.disks()).items()}
    await answer(demo.head, request, as_json=args.json, more={"proof": loaded.proof}, of_workers=disks)
    return 0


async def _demo_serve(demo: Demo, args: argparse.Namespace) -> int:
    """Serve until Ctrl+C. Prints one line of JSON: the head's URL and state folder, and those of all Macs, so that
    programs and people can use any of them.
    """
    await demo.start()
    key = args.key or ""
    for home in demo.homes:
        key = ApiKeys(home.api_keys).add("demo", time.time(), key)
    await demo.join()
    await demo.load()
    await demo.stop_watching()
    url = f"http://{LOOPBACK_HOST}:{args.serve}/v1"
    facts = {
        **{"url": url, "key": key, "model": name_of(Path(demo.model)), "home": str(demo.home.root)},
        "urls": [watch.now.api.url for watch in demo.watches if watch.now.api],
        "homes": [str(home.root) for home in demo.homes],
        "nodes": [demo.pid_of(index) for index in range(len(demo.watches))],
    }
    print(json.dumps(facts), flush=True)
    await asyncio.Event().wait()
    return 0


async def _demo_tui(demo: Demo, args: argparse.Namespace) -> int:
    from tui.demo_app import DemoApp

    await demo.start()
    async with NodeClient(demo.home) as client:
        macs = len(demo.budgets)
        note = f"demo: {macs} simulated Mac{'s' * (macs > 1)} on this one"
        # settings changed here belong to the user; the state of the simulated Macs is discarded
        app = DemoApp(client, demo, note=note, folder=home_of(args).root, preferences=preferences_of(args))

        async def prepare() -> None:
            try:
                app.prepare("Finding and pairing the simulated Macs …")
                await demo.join()
                app.prepare("Loading the model over the simulated Macs …")
                await demo.load()
            except MaclusterError as error:
                app.notify(f"{error.what} {error.fix}", severity="error", timeout=20)
            app.prepare("")
            await demo.stop_watching()

        preparing = asyncio.create_task(prepare())
        await app.run_async()
        preparing.cancel()
        await asyncio.gather(preparing, return_exceptions=True)
    return app.return_code or 0
