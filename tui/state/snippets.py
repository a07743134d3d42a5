"""Snippets that connect another program to this cluster: three lines each, with a placeholder for the key."""

from __future__ import annotations

import re
import socket
from typing import Final, NamedTuple

from core.events import Snapshot
from core.plan.context_choice import FOR_AGENTS
from core.settings import API_PORT, LOOPBACK_HOST

KEY: Final = "KEY"  # a placeholder, since a key is shown only once
MODEL: Final = "MODEL"  # without a loaded model, or for a name that a shell would not take literally


class Snippet(NamedTuple):
    """Text to paste into a program."""

    title: str  # name of the program
    where: str  # where to paste it
    lines: str  # with {{url}} (without "/v1"), {{key}}, {{model}}, {{context}} and {{output}} (tokens)


_SHELL: Final = "In the shell, before you start it:"
# certificate variables of Python's, Rust's and Node's libraries, for an API over TLS
_TRUST: Final = "export SSL_CERT_FILE=api.crt NODE_EXTRA_CA_CERTS=api.crt  # of this Mac: ~/.macluster/api-certificate"

SNIPPETS: Final[dict[str, Snippet]] = {
    "claude-code": Snippet(
        "Claude Code",
        _SHELL,
        """\
export ANTHROPIC_BASE_URL={{url}} ANTHROPIC_AUTH_TOKEN={{key}}
export ANTHROPIC_MODEL={{model}} ANTHROPIC_DEFAULT_HAIKU_MODEL={{model}} CLAUDE_CODE_MAX_CONTEXT_TOKENS={{context}}
claude""",
    ),
    "codex": Snippet(
        "Codex",
        _SHELL,
        """\
export MACLUSTER_API_KEY={{key}}
p='{name="macluster", base_url="{{url}}/v1", env_key="MACLUSTER_API_KEY", wire_api="responses"}'
codex -m {{model}} -c model_context_window={{context}} -c model_provider=macluster -c model_providers.macluster="$p"\
""",
    ),
    "opencode": Snippet(
        "opencode",
        _SHELL,
        """\
o='"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": "{{url}}/v1", "apiKey": "{{key}}"}'
m='"models": {"{{model}}": {"limit": {"context": {{context}}, "output": {{output}}}}}'
export OPENCODE_CONFIG_CONTENT='{"provider": {"macluster": {'"$o, $m"'}}}'; opencode -m macluster/{{model}}""",
    ),
    "openai": Snippet(
        "openai (Python)",
        "In Python:",
        """\
client = openai.OpenAI(base_url="{{url}}/v1", api_key="{{key}}")
said = [{"role": "user", "content": "Hello"}]
print(client.chat.completions.create(model="{{model}}", messages=said).choices[0].message.content)""",
    ),
    "open-webui": Snippet(
        "Open WebUI",
        "In the shell, before its first start (later: Admin Panel, Settings, Connections):",
        """\
export OPENAI_API_BASE_URL={{url}}/v1 OPENAI_API_KEY={{key}}
export ENABLE_OLLAMA_API=false
open-webui serve""",
    ),
    "aider": Snippet(
        "aider",
        _SHELL,
        """\
export OPENAI_API_BASE={{url}}/v1
export OPENAI_API_KEY={{key}}
aider --model openai/{{model}}""",
    ),
    "zed": Snippet(
        "Zed",
        'In settings.json, below "language_models"; Zed asks for the key, or reads MACLUSTER_API_KEY:',
        """\
"openai_compatible": {"macluster": {"api_url": "{{url}}/v1", "available_models": [
  {"name": "{{model}}", "max_tokens": {{context}}, "capabilities": {"tools": true, "images": false,
  "parallel_tool_calls": true, "prompt_cache_key": false}}]}}""",
    ),
    "llm": Snippet(
        "llm",
        "In the shell, once:",
        """\
llm keys set macluster --value {{key}}
echo '- {model_id: macluster, model_name: "{{model}}", api_base: "{{url}}/v1", api_key_name: macluster}' \\
  >> "$(dirname "$(llm logs path)")/extra-openai-models.yaml"; llm -m macluster Hello""",
    ),
}


def text_of(client: str, now: Snapshot) -> str:
    """The text to paste for a client of `SNIPPETS`, with the API's address and the loaded model."""
    url = _reachable(now.api.url.removesuffix("/v1")) if now.api else f"http://{LOOPBACK_HOST}:{API_PORT}"
    context = now.chat_context or FOR_AGENTS
    values = {"url": url, "key": KEY, "model": _model(now), "context": str(context), "output": str(context // 4)}
    snippet = SNIPPETS[client]
    needs_trust = url.startswith("https") and snippet.where.startswith("In the shell")
    text = f"{_TRUST}\n{snippet.lines}" if needs_trust else snippet.lines
    for name, value in values.items():
        text = text.replace("{{" + name + "}}", value)
    return text


def _reachable(url: str) -> str:
    name = socket.gethostname().lower().removesuffix(".local")
    return re.sub(r"//(0\.0\.0\.0|\[::\]):", f"//{name}.local:", url)


def _model(now: Snapshot) -> str:
    name = now.chat_model.rpartition("/")[2]
    return name if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*", name) else MODEL
