"""Completions for shells, and uninstalling everything."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from core.errors import UsageError
from core.settings import Home
from core.trust.identity import load_or_create
from core.trust.private_files import write_private
from tui.cli.completions import WHERE, script
from tui.cli.parser import parser
from tui.cli.uninstall import left, made_in, uninstall


@pytest.mark.parametrize("shell", WHERE)
def test_every_shell_learns_every_command(shell: str) -> None:
    made = script(parser(), shell)
    for word in ("demo", "service", "uninstall", "completions", "topology", "no-multicast"):
        assert word in made, word


@pytest.mark.parametrize(
    ("words", "expected"),
    [(("macluster", "serv"), {"serve", "service"}), (("macluster", "load", "--topo"), {"--topology"})],
)
def test_bash_completes_by_it(words: tuple[str, ...], expected: set[str], tmp_path: Path) -> None:
    if not shutil.which("bash"):
        pytest.skip("needs bash")
    (tmp_path / "c").write_text(script(parser(), "bash"))
    typed = f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _shtab_macluster; echo ${{COMPREPLY[@]}}"
    ran = subprocess.run(["bash", "-c", f"source {tmp_path}/c; {typed}"], capture_output=True, text=True, check=False)
    assert set(ran.stdout.split()) == expected, ran.stderr


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "h")
    load_or_create(home.identity, use_keychain=False)
    for name in ("node.log", "node.log.1", "tui.json", "last-run.json", "seen.json.tmp"):
        write_private(home.root / name, b"{}")
    (home.models / "m").mkdir(parents=True)
    (home.models / "m" / "w").write_bytes(bytes(300_000_000 // 1000))
    return home


def args_of(home: Home, *, yes: bool) -> argparse.Namespace:
    return argparse.Namespace(home=home.root, yes=yes, json=True)


async def test_nothing_goes_before_it_is_agreed_and_then_all_that_macluster_made(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match=r"it must be paired again.*of models.*can't be undone"):
        await uninstall(args_of(home, yes=False))
    assert home.identity.exists()
    assert await uninstall(args_of(home, yes=True)) == 0
    told = json.loads(capsys.readouterr().out)
    assert not home.root.exists()
    assert len(told["removed"]) == 7
    assert any("trust revoke" in line for line in told["left"])
    assert any("uv tool uninstall" in line for line in told["left"])


async def test_what_macluster_did_not_make_stays_and_is_told(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    (home.root / "thesis.txt").write_text("mine")
    assert await uninstall(args_of(home, yes=True)) == 0
    assert "thesis.txt" in json.loads(capsys.readouterr().out)["left"][0]
    assert [path.name for path in home.root.iterdir()] == ["thesis.txt"]


def test_another_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    with pytest.raises(UsageError, match="not a macluster state folder"):
        made_in(Home(tmp_path))


def test_an_item_in_the_keychain_is_told(home: Home) -> None:
    assert not any("keychain" in line for line in left(home))
    own = load_or_create(home.identity, use_keychain=False).text_id
    (home.identity / "passphrase").unlink()
    assert f"`security delete-generic-password -s macluster -a {own}`" in left(home)[0]
