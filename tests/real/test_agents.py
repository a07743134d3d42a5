"""Real agents: what they send fits the chat templates of real families, and each ends a task with what it was asked."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from pathlib import Path

import pytest

from core.models.text.tokenizer import Tokens
from tests.real.conftest import or_skip
from tests.real.packages import CERTIFICATES, Unreachable, kept, package
from tests.real.parrot import make_parrot
from tests.real.served import KEY, served
from tests.replay.recording import FOLDER, requests_of
from tui.state.snippets import text_of

pytestmark = pytest.mark.real

RECORDED = ("claude_code", "codex", "opencode")
# family: its tokenizer, and its chat template where the tokenizer has none
FAMILIES = {
    "Qwen3": ("qwen3", ""),
    "Llama 3.1": ("llama31", ""),
    "Gemma 3": ("gemma3", ""),
    "DeepSeek V3": ("deepseek", ""),
    "gpt-oss": ("gptoss", "openai-gpt-oss-120b.jinja"),
    "Mistral Nemo": ("qwen3", "mistralai-Mistral-Nemo-Instruct-2407.jinja"),
    "Mistral Small": ("qwen3", "Mistral-Small-3.2-24B-Instruct-2506.jinja"),
}

NPM = ("@anthropic-ai/claude-code@2.1.197", "@openai/codex@0.171.0", "opencode-ai@1.18.33")
INSTALLERS = ("@anthropic-ai/claude-code/install.cjs", "opencode-ai/postinstall.mjs")
AIDER = "aider-chat==0.86.2"
# the last line of each client's snippet, and the same without a terminal
BATCH = {
    "claude-code": ("\nclaude", "\nclaude -p --allowedTools=Bash -- '{task}'"),
    "codex": ("\ncodex ", "\ncodex exec --dangerously-bypass-approvals-and-sandbox '{task}' "),
    "opencode": ("; opencode ", "; opencode run '{task}' "),
    "aider": ("\naider ", "\naider --message '{task}' --yes-always --no-analytics --no-check-update --no-git "),
}
QUIET = (
    "DISABLE_TELEMETRY",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
    "DO_NOT_TRACK",
    "LITELLM_LOCAL_MODEL_COST_MAP",
)
TASK = "Copy bird.txt to parrot.txt."
BIRD = "The bird is green.\n"
TASK_S = 900.0  # Claude Code sends some 30,000 tokens first


def tokenizer_of(family: str, folder: Path) -> Tokens:
    name, template = FAMILIES[family]
    shutil.copytree(or_skip(lambda: package(name)), folder, dirs_exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    if template:
        shutil.copy(or_skip(lambda: package("templates")) / template, folder / "chat_template.jinja")
    return Tokens.load(folder)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_agents_send_reaches_the_model_in_every_familys_template(family: str, tmp_path: Path) -> None:
    """The first request and the longest one of each session, with its tools and the newest words."""
    tokenizer = tokenizer_of(family, tmp_path)
    for client in RECORDED:
        sent = [request for requests in requests_of(FOLDER / f"{client}.json") for request in requests]
        for asked in (sent[0], max(sent, key=lambda each: len(each.messages))):
            tokens = tokenizer.encode(asked.messages, asked.raw, asked.tools, asked.template_options)
            stream = tokenizer.stream()
            prompt = "".join(map(stream.add, tokens)) + stream.held
            newest = [message.content for message in asked.messages if message.content][-1]
            assert newest.split()[-1] in prompt, client
            assert all(tool.name in prompt for tool in asked.tools), client


def _agents(folder: Path) -> None:
    """Fetch the four agents. Raises Unreachable."""
    usual = {name: value for name, value in os.environ.items() if name not in CERTIFICATES}
    modules = folder / "node_modules"
    for command in (
        ("npm", "install", "--prefix", folder, "--ignore-scripts", "--no-audit", "--no-fund", *NPM),
        *(("node", modules / script) for script in INSTALLERS),
        (sys.executable, "-m", "pip", "install", "--quiet", "--target", folder / "python", AIDER),
    ):
        try:
            subprocess.run(command, env=usual, capture_output=True, check=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise Unreachable(f"{command[0]}: {getattr(error, 'stderr', '') or error}") from error


@pytest.mark.nightly
@pytest.mark.parametrize("client", BATCH)
async def test_an_agent_does_a_task_with_the_lines_of_its_snippet(client: str, tmp_path: Path) -> None:
    """It reads a file and writes another, by a tool call or in its own form, and ends by itself."""
    agents = or_skip(lambda: kept("agents", _agents))
    work, home = tmp_path / "work", tmp_path / "home"
    work.mkdir()
    home.mkdir()
    (work / "bird.txt").write_text(BIRD)
    aider = home / "aider"  # pip's own script names the Python that fetched it, which may be gone
    aider.write_text(f'#!/bin/sh\nexec {sys.executable} -m aider "$@"\n')
    aider.chmod(0o755)
    paths = (agents / "node_modules" / ".bin", home, os.environ["PATH"])
    usual = {"HOME": str(home), "PATH": ":".join(map(str, paths)), "PYTHONPATH": str(agents / "python")}
    async with served(make_parrot(tmp_path / "parrot"), (8, 8)) as cluster:
        now = cluster.demo.head.now
        assert now.plan
        assert now.plan.context == 131_072
        before, after = BATCH[client]
        script = text_of(client, now).replace("KEY", KEY).replace(f"MACLUSTER_API_{KEY}", "MACLUSTER_API_KEY")
        script = script.replace(f"OPENAI_API_{KEY}", "OPENAI_API_KEY").replace(before, after.format(task=TASK))
        process = await asyncio.create_subprocess_exec(
            *("bash", "-c", script),
            cwd=work,
            env={**usual, **dict.fromkeys(QUIET, "1")},
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=STDOUT,
        )
        async with asyncio.timeout(TASK_S):
            said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    assert (work / "parrot.txt").read_text() == BIRD, said.decode()
    assert "is copied" in said.decode() or client == "aider"
