"""Hostile model directories, each made of a good one: they are refused by the file's name, or do no harm.

Every gate opens every directory, in one child whose time and memory are watched from outside, as a node opens them.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from core.errors import MaclusterError
from core.models.files import child_start
from core.models.files.manifest import Manifests
from core.models.files.model_folder import read_folder
from core.models.files.safetensors import INDEX_NAME
from core.models.files.sandbox import Job, run_child
from core.models.slicing.building import build
from core.models.text.tokenizer import Tokens
from core.requests.answers import Message
from core.settings import MIB
from tests.support.maker import make_model
from tests.support.models import read_entry

pytestmark = pytest.mark.slow

SHARD = "model-00001-of-00002.safetensors"
EVIL = "evil.py"
ROOT = Path(__file__).parents[3]
Make = Callable[[Path], object]


class Trap:
    """Pickled, it makes the canary, a folder, when it is opened."""

    def __init__(self, canary: Path) -> None:
        self._command = f"__import__('os').mkdir({str(canary)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return eval, (self._command,)


def canary_of(model: Path) -> Path:
    return model.with_suffix(".canary")


def edited(file: str, **changes: Any) -> Make:
    def edit(model: Path) -> None:
        content = json.loads((model / file).read_text())
        (model / file).write_text(json.dumps(content | changes))

    return edit


def evil_code(model: Path) -> None:
    code = f"import os\nos.mkdir({str(canary_of(model))!r})\nModel = ModelArgs = Evil = EvilTokenizer = dict\n"
    for name in (EVIL, "configuration_evil.py", "tokenization_evil.py"):
        (model / name).write_text(code)


def with_code(*makes: Make) -> Make:
    def both(model: Path) -> None:
        evil_code(model)
        for make in makes:
            make(model)

    return both


def pickled(model: Path) -> None:
    (model / "pytorch_model.bin").write_bytes(pickle.dumps(Trap(canary_of(model))))


def only(name: str) -> Make:
    def replace(model: Path) -> None:
        for file in [*model.glob("*.safetensors"), model / INDEX_NAME]:
            file.unlink()
        (model / name).write_bytes(pickle.dumps(Trap(canary_of(model))))

    return replace


def mapped(name: str) -> Make:
    def change(model: Path) -> None:
        index = json.loads((model / INDEX_NAME).read_text())
        index["weight_map"]["model.evil"] = name
        (model / INDEX_NAME).write_text(json.dumps(index))

    return change


def linked_out(name: str) -> Make:
    def link(model: Path) -> None:
        outside = model.with_suffix(".outside")
        if (model / name).exists():
            shutil.move(model / name, outside)
        else:
            outside.write_text("secret")
        (model / name).parent.mkdir(exist_ok=True)
        (model / name).symlink_to(outside)

    return link


def device(name: str) -> Make:
    def link(model: Path) -> None:
        (model / name).unlink()
        (model / name).symlink_to("/dev/zero")

    return link


def pipe(name: str) -> Make:
    def make(model: Path) -> None:
        (model / name).unlink(missing_ok=True)
        os.mkfifo(model / name)

    return make


def folder(name: str) -> Make:
    def make(model: Path) -> None:
        (model / name).unlink(missing_ok=True)
        (model / name).mkdir()

    return make


def loop(name: str) -> Make:
    def link(model: Path) -> None:
        (model / name).unlink()
        (model / name).symlink_to(name)

    return link


def claiming(length: int, size: int) -> Make:
    """A shard whose header claims `length` bytes, in a sparse file of that size."""

    def write(model: Path) -> None:
        with (model / SHARD).open("r+b") as file:
            file.write(struct.pack("<Q", length))
            file.truncate(size)

    return write


def header(text: str | Callable[[], str]) -> Make:
    """A shard with this header and 64 bytes of data."""

    def write(model: Path) -> None:
        raw = (text if isinstance(text, str) else text()).encode()
        (model / SHARD).write_bytes(struct.pack("<Q", len(raw)) + raw + b"\0" * 64)

    return write


def tensor(begin: int, end: int) -> str:
    return f'{{"dtype":"U8","shape":[{end - begin}],"data_offsets":[{begin},{end}]}}'


def content(name: str, text: Callable[[], str]) -> Make:
    return lambda model: (model / name).write_text(text())


def several(make: Callable[[Path], object], *names: str) -> Make:
    def write(model: Path) -> None:
        for name in names:
            make(model / name)

    return write


def sparse(name: str, size: int) -> Make:
    def write(model: Path) -> None:
        with (model / name).open("ab") as file:
            file.truncate(size)

    return write


def empty_lists() -> str:
    """60 MB that would become 1.4 GB of Python objects."""
    return "[" + "[]," * 19_999_999 + "[]]"


def many_tensors() -> str:
    return "{" + ",".join(f'"{n:x}":{tensor(0, 0)}' for n in range(500_001)) + "}"


def million_dimensions() -> str:
    return f'{{"a":{{"dtype":"U8","shape":[{",".join("1" * 1_000_000)}],"data_offsets":[0,1]}}}}'


LINKED = (
    *(SHARD, INDEX_NAME, "config.json", "tokenizer.json", "chat_template.jinja", "vocab.json", "hf_quant_config.json"),
    *("additional_chat_templates/tool_use.jinja", "README.md"),
)
ABSURD = [
    *[("num_hidden_layers", 10**9), ("num_hidden_layers", -1), ("n_layer", 10**9), ("hidden_size", 10**12)],
    *[("hidden_size", -96), ("vocab_size", 10**12), ("num_attention_heads", 10**9), ("head_dim", -32)],
    *[("num_key_value_heads", 1e9), ("intermediate_size", 10**15), ("num_loops", 10**9), ("head_dim", 10**12)],
    *[("num_experts", 10**9), ("num_nextn_predict_layers", 10**9)],
]
# name -> (the change to a good model, the file that the refusal names)
REFUSED: dict[str, tuple[Make, str]] = {
    "pickled weights": (only("pytorch_model.bin"), "pytorch_model.bin"),
    "numpy weights": (only("weights.npz"), "weights.npz"),
    "gguf weights": (only("model.gguf"), "model.gguf"),
    "own code": (with_code(edited("config.json", model_file=EVIL)), EVIL),
    "architecture of its own": (with_code(edited("config.json", model_type="evil")), "evil"),
    "architecture that is a path": (with_code(edited("config.json", model_type="../evil")), "config.json"),
    "shard above": (mapped("../model.safetensors"), "../model.safetensors"),
    "shard from the root": (mapped("/etc/passwd"), "/etc/passwd"),
    "shard in a folder above": (mapped("a/../../x"), "a/../../x"),
    "shard of no name": (mapped("\ud800"), "ud800"),
    "shard of a long name": (mapped("x" * 5000), "xxxx"),
    **{f"{name} linked out": (linked_out(name), name) for name in LINKED},
    **{f"{name} a device": (device(name), name) for name in (SHARD, "config.json", "tokenizer.json")},
    **{
        f"{name} a pipe": (pipe(name), name)
        for name in (SHARD, INDEX_NAME, "config.json", "tokenizer.json", "hf_quant_config.json", "merges.txt")
    },
    **{f"{name} a folder": (folder(name), name) for name in (SHARD, "model.safetensors", "tokenizer.json")},
    **{f"{name} a loop": (loop(name), name) for name in (SHARD, "config.json")},
    "header of 1 GB": (claiming(1 << 30, (1 << 30) + 4096), SHARD),
    "header of 2^64-1": (claiming((1 << 64) - 1, 4096), SHARD),
    "header nested deep": (header(lambda: "[" * 1_000_000), SHARD),
    "header nested deep inside": (header(lambda: '{"a":{"shape":' + "[" * 1_000_000), SHARD),
    "header of 500,001 tensors": (header(many_tensors), SHARD),
    "header of empty lists": (header(empty_lists), SHARD),
    "tensors that overlap": (header(f'{{"a":{tensor(0, 32)},"b":{tensor(31, 64)}}}'), SHARD),
    "tensors in one place": (header(f'{{"a":{tensor(0, 64)},"b":{tensor(0, 64)}}}'), SHARD),
    "tensor twice": (header(f'{{"a":{tensor(0, 32)},"a":{tensor(32, 64)}}}'), SHARD),
    "offsets twice": (header('{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8],"data_offsets":[0,8]}}'), SHARD),
    "tensor behind the end": (header(f'{{"a":{tensor(0, 65)}}}'), SHARD),
    "tensor of many dimensions": (header(million_dimensions), SHARD),
    "tensor of huge dimensions": (header('{"a":{"dtype":"U8","shape":[4294967296,0],"data_offsets":[0,0]}}'), SHARD),
    "number of a million digits": (header(lambda: '{"a":' + "9" * 1_000_000 + "}"), SHARD),
    "index of 200 MB": (sparse(INDEX_NAME, 200 * MIB), INDEX_NAME),
    "index of empty lists": (content(INDEX_NAME, empty_lists), INDEX_NAME),
    "tokenizer of 200 MB": (sparse("tokenizer.json", 200 * MIB), "tokenizer.json"),
    "tokenizer of empty lists": (content("tokenizer.json", empty_lists), "tokenizer.json"),
    "template of 200 MB": (sparse("chat_template.jinja", 200 * MIB), "chat_template.jinja"),
    "config of empty lists": (content("config.json", empty_lists), "config.json"),
    "set of many files": (
        several(Path.touch, *(f"model{n}-00001-of-99999.safetensors" for n in range(300))),
        "model0-00002-of-99999.safetensors",
    ),
    **{
        f"config with {key} {value:.3g}": (edited("config.json", **{key: value}), "config.json")
        for key, value in ABSURD
    },
    "config with absurd parts": (edited("config.json", text_config={"moe": [{"num_experts": 10**9}]}), "config.json"),
    "config without end": (edited("config.json", sliding_window_pattern=float("inf")), "config.json"),
}

AUTO_MAP = {
    "AutoConfig": "configuration_evil.Evil",
    "AutoModelForCausalLM": "evil.Model",
    "AutoTokenizer": ["tokenization_evil.EvilTokenizer", "tokenization_evil.EvilTokenizer"],
}
HARMLESS: dict[str, Make] = {
    "pickles beside the weights": pickled,
    "code beside the weights": with_code(edited("config.json", auto_map=AUTO_MAP)),
    "folders beside the weights": several(Path.mkdir, ".cache", "original", "x.json"),
}
# the model may load or not; its code may not run, and the only result is a message
EITHER: dict[str, Make] = {
    "code for the tokenizer": with_code(edited("tokenizer_config.json", auto_map=AUTO_MAP)),
    "class for the tokenizer": with_code(edited("tokenizer_config.json", tokenizer_class="EvilTokenizer")),
    "both for the tokenizer": with_code(
        edited("tokenizer_config.json", auto_map=AUTO_MAP, tokenizer_class="EvilTokenizer"),
        edited("config.json", auto_map=AUTO_MAP),
    ),
    "renderer that is a path": with_code(edited("tokenizer_config.json", chat_template_type="../../evil")),
    "renderer of its own": with_code(edited("tokenizer_config.json", chat_template_type="evil")),
    "tool parser of its own": with_code(edited("tokenizer_config.json", tool_parser_type="evil")),
    "tokenizer nested deep": content("tokenizer.json", lambda: '{"model":' + "[" * 100_000),
    "templates in a folder": with_code(folder("additional_chat_templates")),
    "quantisation of nothing": edited("config.json", quantization={"group_size": 0, "bits": 0}),
    "rope that is a word": edited("config.json", rope_theta="x"),
    "another width": edited("config.json", hidden_size=192),
}


def gates(model: Path) -> dict[str, str]:
    """The refusal of each gate for a directory; empty if it passes."""
    opened: dict[str, Callable[[Path], object]] = {
        "catalog": read_entry,
        "tokens": Tokens.load,
        "weights": lambda directory: build(read_folder(directory)).model,
        "manifest": lambda directory: Manifests(directory.with_suffix(".hashes")).of(directory),
    }
    said: dict[str, str] = {}
    for gate, enter in opened.items():
        if gate == "manifest" and said["catalog"]:
            continue  # the manifest hashes only accepted models
        try:
            enter(model)
            said[gate] = ""
        except MaclusterError as error:
            said[gate] = error.what
    return said


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    root = tmp_path_factory.mktemp("hostile")
    make_model(root / "good", "llama", layers=2, hidden=64, files=2)
    names = {}
    makes = {name: make for name, (make, _) in REFUSED.items()} | HARMLESS | EITHER
    for number, (name, make) in enumerate(makes.items()):
        model = Path(shutil.copytree(root / "good", root / f"m{number}"))
        make(model)
        names[str(model)] = name
    job = Job(
        module="tests.unit.models.test_hostile",
        arguments=tuple(names),
        subject="The table of hostile models",
        fix="See which gate hangs, or swallows memory.",
        seconds=90,
        rss_bytes=1024 * MIB,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        # the table is a test's, which imports pytest
        patch.setattr(child_start, "command_of", lambda *words: [sys.executable, "-P", "-m", *words])
        status, answer = run_child(job)
    assert status == 0, answer[-2000:]
    found = {names[line["model"]]: line for line in map(json.loads, answer.splitlines())}
    yield found
    shutil.rmtree(root)


def test_the_canary_sings(tmp_path: Path) -> None:
    pickled(tmp_path)
    pickle.loads((tmp_path / "pytorch_model.bin").read_bytes())
    assert canary_of(tmp_path).exists()
    canary_of(tmp_path).rmdir()
    evil_code(tmp_path)
    exec((tmp_path / EVIL).read_text(), {})
    assert canary_of(tmp_path).exists()


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.promise("T10")
def test_it_is_refused_by_the_name_of_the_file(outcomes: dict[str, Any], name: str) -> None:
    outcome = outcomes[name]
    assert REFUSED[name][1] in outcome["catalog"]
    assert len(outcome["catalog"]) < 1000
    assert not outcome["canary"]


@pytest.mark.parametrize("name", HARMLESS)
@pytest.mark.promise("T10")
def test_it_does_no_harm(outcomes: dict[str, Any], name: str) -> None:
    outcome = outcomes[name]
    assert [outcome[gate] for gate in ("catalog", "tokens", "weights", "manifest", "canary")] == ["", "", "", "", False]


@pytest.mark.parametrize("name", EITHER)
@pytest.mark.promise("P23")
def test_its_code_does_not_run(outcomes: dict[str, Any], name: str) -> None:
    assert not outcomes[name]["canary"]


BROKEN = ("{% for i in range(1000000000) %}{% endfor %}", "{{ ''.__class__.__mro__ }}")


@pytest.mark.parametrize("file", ["tokenizer_config.json", "chat_template.jinja"])
def test_a_template_that_is_broken_ends_in_a_sentence(tmp_path: Path, file: str) -> None:
    make_model(tmp_path / "m", "llama", layers=1)
    for template in BROKEN:
        if file.endswith(".json"):
            edited(file, chat_template=template)(tmp_path / "m")
        else:
            (tmp_path / "m" / file).write_text(template)
        tokens = Tokens.load(tmp_path / "m")
        with pytest.raises(MaclusterError, match="chat template"):
            tokens.encode([Message(role="user", content="x")], raw=False)


def main() -> None:
    """Run the child: a line of JSON for each directory."""
    for name in sys.argv[1:]:
        said = gates(Path(name))
        print(json.dumps({"model": name, **said, "canary": canary_of(Path(name)).exists()}), flush=True)


if __name__ == "__main__":
    main()
