"""Bytes on the wire between two workers, and an answer after one of them is changed."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.models.files.model_folder import read_folder
from tests.network.wiretap import LONG, PROMPT
from tests.support.maker import make_model

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("nft"),
    reason="needs root, iproute2 and nftables to make a network namespace",
)


@pytest.fixture
def namespace() -> Iterator[str]:
    name = f"mc-wire-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


@pytest.mark.promise("P1", "T1")
def test_a_tap_on_a_hop_hears_nothing_and_a_flipped_byte_changes_no_token(namespace: str, tmp_path: Path) -> None:
    model = tmp_path / "llama"
    make_model(model, "llama", layers=4)
    command = ["ip", "netns", "exec", namespace, sys.executable, "-m", "tests.network.wiretap", str(model)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    seen = json.loads(ran.stdout)

    heard = bytes.fromhex(seen["heard"])
    assert len(heard) > 24 * 96 * 4, "the hop did lead through the tap"
    canaries = secrets_of(model, seen["cut"], seen["tokens"], seen["text"]) | {name.encode() for name in seen["names"]}
    assert len(canaries) >= 1000
    assert not [canary for canary in canaries if canary in heard]

    assert seen["flipped"]
    assert seen["broken"], "the seal notices, and the ring is linked anew"
    assert seen["finish_reason"] == "length"
    assert len(seen["disturbed"]) == LONG
    assert seen["disturbed"] == seen["quiet"]
    assert seen["disturbed"][: len(seen["tokens"])] == seen["tokens"]


@pytest.mark.promise("P34")
def test_what_ranks_add_up_is_not_heard_on_the_wire(namespace: str) -> None:
    command = ["ip", "netns", "exec", namespace, sys.executable, "-m", "tests.network.sniffer"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    heard = json.loads(ran.stdout)
    assert heard["plain"]["canaries"] > 0, "what would be heard is known"
    assert heard["sealed"]["bytes"] > heard["plain"]["bytes"]
    assert heard["sealed"]["canaries"] == 0


def test_without_multicast_the_demo_uses_direct_addresses_and_says_so(namespace: str, tmp_path: Path) -> None:
    model = tmp_path / "llama"
    make_model(model, "llama", layers=4)
    inside = ["ip", "netns", "exec", namespace]
    silence = (
        "table ip mc {\nchain out {\ntype filter hook output priority 0; policy accept;\nudp dport 5353 drop\n}\n}\n"
    )
    subprocess.run([*inside, "nft", "-f", "-"], input=silence, text=True, check=True)
    words = [
        sys.executable,
        "-m",
        "tui.cli.main",
        "demo",
        "--macs",
        "2",
        "--model",
        str(model),
        "--prompt",
        "hello",
        "--max-tokens",
        "4",
    ]
    ran = subprocess.run([*inside, *words], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "using direct addresses" in ran.stderr
    assert "Found by direct addresses; 2 Mac(s)" in ran.stdout


def secrets_of(model: Path, cut: int, tokens: list[int], text: str) -> set[bytes]:
    """Secrets to search for, each of 8 bytes or more, so that none occurs by chance.

    They are pieces of the prompt and the answer, runs of token ids in every width, and pieces of real activations.
    """
    import mlx.core as mx
    import numpy as np

    from core.models.slicing.loading import load_slice
    from core.models.text.tokenizer import Tokens
    from core.requests.answers import Message

    prompt = Tokens.load(model).encode([Message(role="user", content=PROMPT)], raw=False)
    words = [said[i : i + 8] for said in (PROMPT.encode(), text.encode()) for i in range(len(said) - 7)]
    runs = [ids[i : i + 4] for ids in (prompt, tokens) for i in range(len(ids) - 3)]
    ids = [struct.pack(f"{order}4{width}", *run) for run in runs for order in "<>" for width in "HIQ"]
    layers = load_slice(read_folder(model), 0, cut, embed=True, output=False)
    (boundary,) = layers.embed(mx.array([prompt[:-1]]), layers.caches.new(), 0)
    mx.eval(boundary)
    rows = bytes(np.asarray(boundary).tobytes())
    activations = [rows[i : i + 16] for i in range(0, len(rows) - 16, len(rows) // 800)]
    return {*words, *ids, *activations}
