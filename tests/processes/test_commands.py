"""The commands, run against a real node on loopback."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.models.files.model_folder import read_folder
from core.models.slicing.loading import slice_parts
from core.node.base.home_lock import home_lock
from core.node.base.stderr_log import MAX_BYTES
from core.plan.notes import EVERY_RANK_SEES, ON_THE_CABLE
from core.settings import Home
from tests.support import waiting
from tests.support.app import text_of
from tests.support.borrowing import borrowing
from tests.support.cluster import Make, reference
from tests.support.command import CommandResult
from tests.support.command import macluster as macluster_here
from tui.app import MaclusterApp
from tui.client import NodeClient
from tui.own_node import OwnNode

MACLUSTER = [sys.executable, "-m", "tui.cli.main"]


def macluster(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MACLUSTER, "--home", str(home), *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def said_here(home: Path, *words: str) -> CommandResult:
    """Run a command in this process: starting one takes longer than most commands."""
    return asyncio.run(macluster_here(home, *words))


def facts(home: Path, *words: str) -> Any:
    ran = said_here(home, *words, "--json")
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.fixture(scope="module")
def model(made: Make) -> Path:
    return made("llama", bits=4)


@pytest.fixture(scope="module")
def home(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("h")
    options = ["--host", "127.0.0.1", "--port", "0", "--no-multicast", "--budget", "8", "--name", "lab"]
    with subprocess.Popen([*MACLUSTER, "--home", str(folder), "node", *options, "--models", str(model)]) as node:
        deadline = time.monotonic() + 120
        while not (folder / "node.sock").exists():
            assert node.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        command = Path(f"/proc/{node.pid}/cmdline")
        if command.exists():
            assert b"-m\0core.node" in command.read_bytes()
        yield folder
        node.send_signal(signal.SIGTERM)
        assert node.wait(60) == 0
    assert not (folder / "node.sock").exists()


def test_a_second_node_on_one_home_says_so_and_touches_nothing(home: Path) -> None:
    before = (home / "node.sock").stat().st_ino
    second = macluster(home, "node", "--host", "127.0.0.1", "--port", "0", "--no-multicast", "--discard")
    pid = (home / "node.lock").read_text()
    assert (second.returncode, f"Another node (process {pid}) runs on {home} already." in second.stderr) == (1, True)
    assert "press A, then o, in macluster" in second.stderr
    assert (home / "node.sock").stat().st_ino == before
    assert facts(home, "status")["peers"]


async def test_what_a_node_that_the_screen_started_complains_of_is_kept(tmp_path: Path) -> None:
    home = Home(tmp_path / "mac")
    home.root.mkdir(0o700)
    home.stderr_log.write_text("the one before")
    with home_lock(home):
        node = OwnNode(home)
        node.start()
        await waiting.until(lambda: not node.is_running)
        assert "runs on" in str(node.trouble)
        await node.close()
    assert not home.last_run.exists(), "they are those of the node that has the home"
    assert (home.root / "node.stderr.1").read_text() == "the one before"
    assert home.stderr_log.read_text().startswith(f"macluster: Another node (process {os.getpid()}) runs on ")
    assert home.stderr_log.stat().st_mode & 0o777 == 0o600


def test_what_a_service_complains_of_for_years_is_bounded(tmp_path: Path) -> None:
    """launchd opens the same file at every start and appends to it."""
    home = Home(tmp_path / "mac")
    home.root.mkdir(0o700)
    home.stderr_log.write_bytes(long := b"." * (MAX_BYTES + 1))
    with home_lock(home):
        for starts in (1, 2):
            with home.stderr_log.open("ab") as complaints:
                command = (sys.executable, "-m", "core.node", "--home", str(home.root))
                assert subprocess.run(command, stderr=complaints, timeout=120).returncode == 1
            assert home.stderr_log.read_text().count("macluster: Another node (process ") == starts
    assert (home.root / "node.stderr.1").read_bytes() == long


async def test_a_port_that_is_taken_is_told_by_whom_and_a_key_takes_another(tmp_path: Path) -> None:
    home = Home(tmp_path / "mac")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        node = OwnNode(home, ["--host", "127.0.0.1", "--no-multicast", "--no-spare-worker", "--port", port])
        node.start()
        async with NodeClient(home) as client:
            app = MaclusterApp(client, folder=home.root, node=node)
            async with app.run_test(size=(100, 30)):
                await waiting.until(lambda: "P starts it on another port." in text_of(app))
                screen = text_of(app)
                assert f"Port {port} is in use by " in screen
                assert f"(pid {os.getpid()})" in screen
                assert "N starts it again, P starts it on another port." in screen
                ran = await macluster_here(home.root, "status")
                assert (ran.returncode, f"Port {port} is in use by" in ran.stderr) == (1, True)
                doctor = await macluster_here(home.root, "doctor", "--host", "127.0.0.1", "--json")
                found = json.loads(doctor.stdout)
                assert f"Port {port} is in use by" in found[0]["what"]
                assert app.why_not("start_node") == ""
                await app.run_action("start_node(0)")
                await waiting.until(lambda: app.state.attached)
                assert app.state.offline is None
                assert app.why_not("start_node") == "macluster's service is already running."
        await node.close()
    assert not home.last_run.exists(), "it has ended in order"


def test_status_models_and_plan(home: Path, model: Path) -> None:
    status = facts(home, "status")
    assert [(p["name"], p["is_self"], p["trust"]) for p in status["peers"]] == [("lab", True, "paired")]
    assert status["plan_status"] == "none"
    (found,) = facts(home, "models")
    assert (found["name"], found["layers"]) == (model.name, 8)
    assert (found["fit"], found["preview"]["cuts"]) == ("1 Mac, no hops", None), "nobody has examined it yet"
    planned = facts(home, "plan", model.name)
    plan = planned["plan"]
    assert plan["topology"] == "single"
    assert [(s["start"], s["stop"]) for s in plan["stages"]] == [(0, 8)]
    assert planned["cuts"] == [1, 2, 3, 4, 5, 6, 7]
    (found,) = facts(home, "models")
    assert found["preview"]["cuts"] == planned["cuts"], "what was found out is remembered"
    known = facts(home, "models", "--known")
    assert [m["fit"] for m in known[:3]] == ["1 Mac"] * 3, "what fits 8 GB comes first"
    assert known[0]["offer"]["repo"].startswith("mlx-community/")
    assert "needs" in known[-1]["fit"]
    assert "lab" in said_here(home, "status").stdout
    assert "1 Mac, no hops" in macluster(home, "models").stdout, "also from a shell"


def test_load_run_and_unload(home: Path, model: Path) -> None:
    (expected,) = reference(model, ["a hop is"], 16)
    loaded = facts(home, "load", str(model), "--verify", "--parallelism", "tp")
    assert loaded["plan"]["parallelism"]["reason"] == "no other Mac is linked"
    assert loaded["plan_status"] == "ready"
    assert loaded["proof"].startswith("Proved against mlx_lm")
    answer = facts(home, "run", model.name, "-p", "a hop is", "--max-tokens", "16")
    assert answer["tokens"] == expected
    assert answer["hops"] == []
    plain = macluster(home, "run", model.name, "-p", "a hop is", "--max-tokens", "16", "--parallelism", "single")
    assert plain.returncode == 0
    assert facts(home, "status")["plan"]["parallelism"]["choice"] == "single", "another choice is another plan"
    assert plain.stdout.strip()
    assert facts(home, "unload") == {"unloaded": True}
    assert facts(home, "unload") == {"unloaded": False}, "there is nothing any more"
    assert facts(home, "status")["plan"] is None


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["plan", "no-such-model"], 1, "This Mac has no model 'no-such-model'"),
        (["load", "/no/such/folder"], 1, "/no/such/folder"),
        (["run", "no-such-model", "-p", "x"], 1, "no-such-model"),
        (["nonsense"], 2, "invalid choice"),
        (["run"], 2, "required"),
        (["demo", "--memory", "64,oops"], 2, "is not a list of GB"),
        (["plan", "m", "--macs", "64,oops"], 2, "--macs '64,oops' is not a list of GB"),
        (["plan", "m", "--macs", "nan"], 2, "must be above 0"),
        (["plan", "m", "--macs", "8", "--context", "0"], 2, "context"),
        (["plan", "m", "--layers", "9:4"], 2, "Write the lower layer first: 4:9."),
        (["demo", "--layers", "0:4,5"], 2, "'5' is not a layer range"),
        (["demo", "--topology", "ring"], 2, "invalid choice"),
        (["demo", "--parallelism", "ring"], 2, "invalid choice"),
        (["demo", "--parallelism", "tp", "--topology", "private"], 2, "makes the topology tensor, not private"),
        (["load", "m", "--parallelism", "auto", "--layers", "0:4,5:9"], 2, "Leave out the layers"),
        (["plan", "m", "--macs", "8,8", "--rdma"], 2, "Choose parallelism tp or auto"),
        (["plan", "no-such-model", "--macs", "8"], 1, "This Mac has no model 'no-such-model'"),
        (["demo", "--macs", "0"], 2, "--macs 0"),
        (["demo", "--memory", "-3"], 2, "budget"),
        ([], 2, "needs a terminal"),
    ],
)
def test_bad_use_is_told_with_the_cure(home: Path, words: list[str], status: int, said: str) -> None:
    ran = said_here(home, *words)
    assert ran.returncode == status
    assert said in ran.stderr


def test_a_model_that_does_not_fit_is_refused_with_the_number(model: Path, tmp_path: Path) -> None:
    words = ["demo", "--no-multicast", "--model", str(model), "--memory", "0.0001", "--prompt", "x"]
    ran = said_here(tmp_path, *words)
    assert ran.returncode == 1
    assert "GB more on" in ran.stderr


def test_without_a_node_every_command_says_so(tmp_path: Path) -> None:
    for words in (["status"], ["models"], ["plan", "m"], ["load", "m"], ["unload"], ["run", "m", "-p", "x"]):
        ran = said_here(tmp_path, *words)
        assert ran.returncode == 1
        assert "No node answers" in ran.stderr or "does not answer" in ran.stderr
        assert "macluster node" in ran.stderr


@pytest.fixture(scope="module")
def restricted(made: Make, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of eight layers that can be cut before layers 1 and 2 only."""
    return borrowing(made("gemma4_text"), tmp_path_factory.mktemp("restricted") / "borrowing")


def test_a_split_over_macs_that_do_not_exist_is_explained_without_a_node(restricted: Path, tmp_path: Path) -> None:
    told = facts(tmp_path / "h", "plan", str(restricted), "--macs", "64,32,16")
    assert [(s["peer"], s["start"], s["stop"]) for s in told["plan"]["stages"]] == [
        ("mac 1", 0, 1),
        ("mac 2", 1, 2),
        ("mac 3", 2, 8),
    ]
    assert (told["cuts"], told["plan"]["batched"]) == ([1, 2], True)
    assert [(h["from"], h["to"], h["bytes_per_token"]) for h in told["hops"]] == [
        ("mac 1", "mac 2", 384),
        ("mac 2", "mac 3", 384),
        ("mac 3", "mac 1", 384),
    ]
    assert facts(tmp_path / "h", "plan", "macluster-demo", "--macs", "8,8")["plan"]["layers"] == 16
    plain = said_here(tmp_path / "h", "plan", str(restricted), "--macs", "64,32,16")
    assert plain.stdout.splitlines()[5:] == [
        "mac 2 starts at layer 1 instead of 5: layers 3 to 7 share state with those before.",
        "mac 3 starts at layer 2 instead of 7: layers 3 to 7 share state with those before.",
        "Context: 4,096 tokens, as much as the model takes.",
        "Any Mac except mac 1 can drop out; the others can take over.",
        "mac 1 would see token ids, logits.",
        "mac 2 would see hidden states of layer 1.",
        "mac 3 would see hidden states of layers 2–7.",
        "It can only be cut before layers 1–2.",
        "Rows of several requests share a batch.",
    ]
    short = said_here(tmp_path / "h", "plan", str(restricted), "--macs", "0.001,0.001,0.0001", "--json")
    assert short.returncode == 1
    draft = json.loads(short.stdout)["draft"]
    assert draft["stages"][2]["free_bytes"] < 0
    assert "GB more on" in json.loads(short.stdout)["problem"]["what"]


def test_layers_that_a_person_gives_out_make_the_topology(restricted: Path, tmp_path: Path) -> None:
    def planned(*words: str) -> tuple[int, Any]:
        ran = said_here(tmp_path / "h", "plan", str(restricted), "--macs", "64,32,16", *words, "--json")
        return ran.returncode, json.loads(ran.stdout)

    status, told = planned("--layers", "2:output,1:1,0:0")
    assert (status, told["plan"]["topology"], told["plan"]["output"]) == (0, "reverse", "mac 1")
    assert [(s["peer"], s["start"], s["stop"], s["sees"]) for s in told["plan"]["stages"]] == [
        ("mac 1", 2, 8, "token ids, logits"),
        ("mac 3", 0, 1, "token ids"),
        ("mac 2", 1, 2, "hidden states of layer 1"),
    ]
    assert [h["bytes_per_token"] for h in told["hops"]] == [4, 384, 384]
    assert planned("--topology", "forward")[1]["plan"]["output"] == "mac 3"
    for words, said in (
        (("--layers", "0:0,2:output"), "No Mac has layer 1."),
        (("--layers", "2:7,0:1"), "without the output"),
        (("--layers", "0:4,5:output"), "cannot be cut before layer 5"),
        (("--layers", "0:1,2:output", "--topology", "private"), "make the topology forward, not private"),
    ):
        status, told = planned(*words)
        assert (status, told["plan"]) == (1, None)
        assert said in told["problem"]["what"]
        assert told["problem"]["fix"]


def test_how_macs_would_share_it_is_said_with_the_reason(made: Make, tmp_path: Path) -> None:
    def planned(*words: str) -> Any:
        ran = said_here(tmp_path / "h", "plan", str(made("llama")), *words, "--json")
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)["plan"]

    tp = planned("--macs", "8,4", "--parallelism", "tp", "--rdma")
    how = {"choice": "tp", "strategy": "tp", "reason": "your choice", "group": "rdma"}
    assert (tp["topology"], tp["parallelism"]) == ("tensor", how)
    assert [s["sees"] for s in tp["stages"]] == ["token ids, logits", "token ids"]
    assert tp["notes"][1:] == [EVERY_RANK_SEES, ON_THE_CABLE, "Context: 4,096 tokens, as much as the model takes."]
    alone = planned("--macs", "8", "--parallelism", "tp")
    assert alone["parallelism"]["reason"] == "no other Mac is linked"
    assert planned("--macs", "8,4")["parallelism"] is None


def test_a_plan_lists_what_each_mac_would_read(restricted: Path, tmp_path: Path) -> None:
    told = facts(tmp_path / "h", "plan", str(restricted), "--macs", "64,32", "--parts")
    slices = [(0, 2, True, True), (2, 8, False, False)]
    for share, (start, stop, embed, output) in zip(told["parts"], slices, strict=True):
        expected = slice_parts(read_folder(restricted), start, stop, embed=embed, output=output)
        assert share["files"] == [{"file": p.file, "begin": p.begin, "end": p.end} for p in expected]


def test_a_pipe_that_is_closed_early_is_no_crash(restricted: Path, tmp_path: Path) -> None:
    command = [*MACLUSTER, "--home", str(tmp_path), "plan", str(restricted), "--macs", "64,32"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        complaint = process.stderr.read()
    assert b"Traceback" not in complaint


@pytest.mark.promise("T9")
def test_the_socket_and_the_state_folder_are_private(home: Path) -> None:
    assert os.stat(home / "node.sock").st_mode & 0o777 == 0o600
    assert os.stat(home / "identity").st_mode & 0o777 == 0o700


@pytest.mark.usefixtures("bonjour")
def test_the_demo_without_a_terminal_is_plain_text_and_finds_by_bonjour() -> None:
    words = [*MACLUSTER, "demo", "--macs", "2"]
    ran = subprocess.run(
        words, capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL, env=os.environ
    )
    assert ran.returncode == 0, ran.stderr
    for part in (
        "Bonjour on the loopback",
        "Plan:",
        "studio (head)",
        "Trust: paired",
        "> How does",
        "Hops:",
        "tokens/s",
        "contiguous",
        "usable memory",
        "finish: stop",
    ):
        assert part in ran.stdout or part in ran.stderr, part
    assert "\x1b" not in ran.stdout
