from __future__ import annotations

import argparse
import asyncio
import errno
import os
from pathlib import Path
from typing import NoReturn
from unittest.mock import AsyncMock, Mock

import pytest
from msgspec.structs import replace

from core.errors import NodeError
from core.node import process
from core.node.base.home_lock import home_lock
from core.node.base.last_run import read_last_run, recording_run, unreachable
from core.node.config import NodeConfig
from core.node.options import add_options
from core.node.peers.mesh import Mesh
from core.node.process import config_from, discarded, serve
from core.node.service import Node
from core.settings import GB, STAY, Home
from core.trust import keychain
from core.trust.identity import load_or_create
from tests.support.plans import plan_of


def test_where_programs_are_served_is_known_before_they_are(tmp_path: Path) -> None:
    """They may be served later, at the press of a key."""
    parser = argparse.ArgumentParser()
    add_options(parser)
    config = config_from(parser.parse_args(["--home", str(tmp_path), "--api-port", "4799"]))
    assert (config.api.port, config.serves) == (4799, False)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NodeConfig:
    monkeypatch.setattr(process, "STOP_S", 1e6)  # then it ends this process
    home = Home(tmp_path / "h")
    home.root.mkdir(0o700)
    return NodeConfig(home=home, name="mac", host="127.0.0.1", port=0, budget_bytes=GB, multicast=False)


def test_a_folder_in_the_place_of_the_socket_is_told_at_once(
    config: NodeConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    config.home.socket.mkdir()
    assert asyncio.run(serve(config)) == 1
    assert "node.sock can't be made: Is a directory." in capsys.readouterr().err
    assert "node.sock can't be made" in unreachable(config.home).what
    assert config.home.socket.is_dir()


@pytest.mark.parametrize(("said", "stops"), [([], True), ([STAY], False), ([b"x\n"], True)])
def test_a_node_ends_with_its_starter_unless_it_is_told_to_stay(
    said: list[bytes], stops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = iter([*said, b""])
    monkeypatch.setattr(os, "read", lambda *_: next(words))
    loop = Mock()
    process._stop_at_eof(loop, print)
    assert loop.call_soon_threadsafe.called == stops


def test_too_long_a_path_of_a_home_is_told_at_once(config: NodeConfig, capsys: pytest.CaptureFixture[str]) -> None:
    home = Home(config.home.root / ("y" * 108))
    home.root.mkdir(0o700)
    assert asyncio.run(serve(replace(config, home=home))) == 1
    assert "can't be made: AF_UNIX path too long. Remove what is there, or choose a folder" in capsys.readouterr().err


def test_a_defect_at_the_start_is_recorded_and_printed(
    config: NodeConfig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def start(*_: object) -> NoReturn:
        raise KeyError("port")

    monkeypatch.setattr(Mesh, "start", start)
    assert asyncio.run(serve(config)) == 1
    assert capsys.readouterr().err.endswith("KeyError: 'port'\n")
    assert "It failed by a defect: KeyError at" in unreachable(config.home).what


@pytest.mark.parametrize("place", ["keychain", "file"])
def test_a_simulated_mac_leaves_no_item_in_the_keychain(
    place: str, config: NodeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped: list[str] = []
    monkeypatch.setattr(keychain, "drop", dropped.append)
    identity = load_or_create(config.home.identity, use_keychain=False)
    if place == "keychain":
        (config.home.identity / "passphrase").unlink()
    with discarded(config.home):
        pass
    assert dropped == ([identity.text_id] if place == "keychain" else [])
    assert not config.home.root.exists()


@pytest.mark.parametrize(("number", "cure"), [(errno.EROFS, "with --home"), (errno.ELOOP, "Move it away")])
def test_a_home_that_cannot_be_written_is_told_with_its_cure(
    config: NodeConfig, monkeypatch: pytest.MonkeyPatch, number: int, cure: str
) -> None:
    def fail(*_: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(NodeError) as caught, home_lock(config.home):
        pass
    assert cure in caught.value.fix


async def test_a_node_that_follows_a_killed_one_offers_its_model(
    config: NodeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with recording_run(config.home):
        node = Node(config)
        plan = plan_of(2)
        node.parts.peers.worker.led = plan
        node._note_led()
        assert (last := read_last_run(config.home))
        assert last.led == plan.model
        monkeypatch.setattr(Mesh, "start", AsyncMock())
        monkeypatch.setattr(type(node.parts.local_server), "start", AsyncMock(side_effect=KeyError("enough")))
        with pytest.raises(KeyError):
            await node.run()
    lines = [line.text for line in node.parts.node.bus.now.logs]
    assert [line for line in lines if f"`macluster load {plan.model}`" in line]
