"""Snippets for other programs: they work there, contain no key, and are those of the README."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from core.events import ApiServed, LedPlan, Snapshot
from core.plan.context_choice import FOR_AGENTS
from tests.support.plans import plan_of
from tui.state.snippets import SNIPPETS, text_of

README = Path(__file__).parents[3] / "core" / "node" / "public_api" / "README.md"
URL = "http://127.0.0.1:4790"


def now(model: str = "/models/toy-4bit") -> Snapshot:
    return Snapshot(api=ApiServed(url=f"{URL}/v1"), plan=replace(plan_of(2), model=model))


def led_elsewhere(model: str) -> Snapshot:
    return Snapshot(elsewhere=(LedPlan(head="a", led_by="studio", model=model),))


def in_shell(client: str, told: str) -> str:
    """The output of `told` in a shell where the client program is a stub."""
    stub = "claude() { :; }; opencode() { :; }; codex() { printf '%s\\n' \"$@\"; }; aider() { echo $2; }\n"
    script = stub + text_of(client, now()) + "\n" + told
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout


def test_each_reads_there_as_it_should() -> None:
    names = ("ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_MODEL", "CLAUDE_CODE_MAX_CONTEXT_TOKENS")
    told = in_shell("claude-code", f"echo ${' $'.join(names)}")
    assert told.split() == [URL, "KEY", "toy-4bit", "64"]
    provider = json.loads(in_shell("opencode", 'echo "$OPENCODE_CONFIG_CONTENT"'))["provider"]["macluster"]
    assert provider["options"] == {"baseURL": f"{URL}/v1", "apiKey": "KEY"}
    assert provider["models"] == {"toy-4bit": {"limit": {"context": 64, "output": 16}}}
    words = in_shell("codex", "").splitlines()
    assert words[:4] == ["-m", "toy-4bit", "-c", "model_context_window=64"]
    options: dict[str, Any] = tomllib.loads(words[-1])["model_providers"]["macluster"]
    assert (options["base_url"], options["wire_api"]) == (f"{URL}/v1", "responses")
    assert in_shell("aider", "echo $OPENAI_API_BASE").split() == ["openai/toy-4bit", f"{URL}/v1"]
    (model,) = json.loads("{" + text_of("zed", now()) + "}")["openai_compatible"]["macluster"]["available_models"]
    assert (model["name"], model["max_tokens"]) == ("toy-4bit", plan_of(2).context)
    compile(text_of("openai", now()), "openai", "exec")


def test_a_mac_that_another_one_leads_names_what_that_has_loaded() -> None:
    for client in SNIPPETS:
        led = text_of(client, led_elsewhere("toy-4bit"))
        assert led == text_of(client, Snapshot(plan=replace(plan_of(2), model="toy-4bit", context=FOR_AGENTS)))
        assert ("toy-4bit" in led) == ("{{model}}" in SNIPPETS[client].lines)
        assert text_of(client, led_elsewhere("$(reboot)")) == text_of(client, Snapshot())


def test_over_tls_the_certificate_is_named_and_so_is_this_mac() -> None:
    text = text_of("aider", Snapshot(api=ApiServed(url="https://0.0.0.0:4720/v1")))
    trust, base, *_ = text.splitlines()
    assert trust.startswith("export SSL_CERT_FILE=api.crt NODE_EXTRA_CA_CERTS=api.crt")
    assert re.fullmatch(r"export OPENAI_API_BASE=https://[^/]+\.local:4720/v1", base)


@pytest.mark.parametrize("name", ["$(reboot)", "a b", "x'; rm -rf ~; '", "`id`", "-rf", ""])
@pytest.mark.promise("P31")
def test_the_name_of_a_model_is_no_command(name: str) -> None:
    for client in SNIPPETS:
        assert text_of(client, now(name)) == text_of(client, now("MODEL"))


@pytest.mark.parametrize("client", SNIPPETS)
def test_each_is_three_lines_which_the_readme_shows(client: str) -> None:
    text = text_of(client, Snapshot())
    assert len(text.splitlines()) == 3
    assert text in README.read_text()
