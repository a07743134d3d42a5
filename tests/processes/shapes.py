"""Random schemas over split models at temperature 1, by hand: `python -m tests.processes.shapes --schemas 1000`.

Every document that ends must hold its schema, by `jsonschema`. Each is also continued from a random token, as after the
loss of a Mac, and must end the same. Prints JSON: how many held, were cut off by their length, or were refused.
"""

from __future__ import annotations

import argparse
import json
import random
import secrets
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, Final

import jsonschema
import msgspec

from core.constraint import Constraint, Grammar
from core.demo import DEMO_MODEL
from core.engine.requests import Request
from core.errors import UsageError
from core.events import Topology
from core.models.files.model_folder import read_settings
from core.models.files.ready_child import ReadyChild
from core.models.text.grammar_check import check
from core.models.text.tokenizer import Tokens
from core.models.text.vocabulary import Vocabulary, read_vocabulary
from core.sampling_options import Sampling
from core.settings import QUEUE_LIMIT
from tests.support.maker import make_model
from tests.support.worker_ring import RingAnswer, WorkerRing, a_request, worker_ring

ROWS: Final = 16
MAX_TOKENS: Final = 600
NAMES: Final = ("name", "size", "föhn", "a b", 'quo"te', "deep", "x")
PATTERNS: Final = ("^[a-z]{1,4}$", "^(yes|no)$", "^\\d{2}-\\d{2}$", "^[^\\n]{0,6}$")
FORMATS: Final = ("date", "time", "date-time", "uuid", "ipv4", "email")
RINGS: Final[tuple[tuple[Topology, int], ...]] = (("private", 2), ("private", 3), ("forward", 2), ("forward", 3))


def a_schema(dice: random.Random, depth: int = 3) -> dict[str, Any]:
    """A schema that texts of about a dozen tokens can hold."""
    kinds = ["null", "boolean", "integer", "number", "string", "enum", "const"]
    kinds += ["object", "object", "array", "anyOf", "$ref"] * (depth > 0)
    match dice.choice(kinds):
        case "integer" | "number" as kind:
            low = dice.randint(-50, 50)
            return {"type": kind, "minimum": low, "maximum": low + dice.randint(0, 3000)}
        case "string":
            return {"type": "string", **_text(dice)}
        case "enum":
            return {"enum": [_value(dice) for _ in range(dice.randint(1, 4))]}
        case "const":
            return {"const": _value(dice)}
        case "object":
            return _object(dice, depth)
        case "array":
            least = dice.randint(0, 2)
            schema: dict[str, Any] = {"type": "array", "minItems": least, "maxItems": least + dice.randint(0, 2)}
            if dice.random() < 0.3:
                schema["prefixItems"] = [a_schema(dice, depth - 1) for _ in range(dice.randint(1, 2))]
            return {**schema, "items": a_schema(dice, depth - 1)}
        case "anyOf":
            return {"anyOf": [a_schema(dice, depth - 1) for _ in range(dice.randint(1, 3))]}
        case "$ref":
            return {"$ref": "#/$defs/shared"}
        case kind:
            return {"type": kind}


def _object(dice: random.Random, depth: int) -> dict[str, Any]:
    names = dice.sample(NAMES, dice.randint(0, 4))
    return {
        "type": "object",
        "properties": {name: a_schema(dice, depth - 1) for name in names},
        "required": [name for name in names if dice.random() < 0.6],
        "additionalProperties": False,
    }


def _text(dice: random.Random) -> dict[str, Any]:
    match dice.randrange(3):
        case 0:
            return {"minLength": dice.randint(0, 3), "maxLength": dice.randint(3, 10)}
        case 1:
            return {"pattern": dice.choice(PATTERNS)}
        case _:
            return {"format": dice.choice(FORMATS)}


def _value(dice: random.Random) -> Any:
    return dice.choice([None, True, -3, 2.5, "word", 'q"\\', "日本", [1, "x"], {"k": [None]}])


def schemas(seed: int) -> Any:
    """Endless schemas; a seed always gives the same ones."""
    dice = random.Random(seed)
    while True:
        yield {"$defs": {"shared": {"enum": ["s", 0, None]}}, **a_schema(dice)}


class Search:
    """One ring, and the results of the schemas it was asked for."""

    def __init__(self, ring: WorkerRing, words: Vocabulary, eos: Sequence[int], figures: Counter[str]) -> None:
        self._ring, self._words, self._eos, self._figures = ring, words.tokens, list(eos), figures

    def run(self, asked: Sequence[dict[str, Any]], dice: random.Random) -> None:
        """Ask for all schemas together, then continue each ended document from its middle."""
        requests = [self._request(schema, dice) for schema in asked]
        answers = self._ring.generate_all(requests)
        whole = [
            (request, answer, dice.randint(1, len(answer.tokens) - 1))
            for schema, request, answer in zip(asked, requests, answers, strict=True)
            if self._holds(schema, answer) and len(answer.tokens) > 1
        ]
        again = [
            msgspec.structs.replace(request, request_id=secrets.token_hex(16), written=list(answer.tokens[:cut]))
            for request, answer, cut in whole
        ]
        for (_, answer, cut), rest in zip(whole, self._ring.generate_all(again) if again else [], strict=True):
            self._count("went on" if rest.tokens == answer.tokens[cut:] else "WENT ON OTHERWISE", rest)

    def _request(self, schema: dict[str, Any], dice: random.Random) -> Request:
        prompt = [dice.randrange(8, 200) for _ in range(dice.randint(1, 12))]
        sampling = Sampling(temperature=1.0, seed=dice.randrange(1 << 40))
        plain = a_request(prompt, max_tokens=MAX_TOKENS, sampling=sampling, eos=self._eos)
        return msgspec.structs.replace(plain, constraint=Constraint(kind="json_schema", source=json.dumps(schema)))

    def _holds(self, schema: dict[str, Any], answer: RingAnswer) -> bool:
        if answer.done.finish_reason != "stop":
            problem = answer.done.problem
            self._count("cut off by its length" if problem is None else f"ENDED BY {problem.what}", answer)
            return False
        text = b"".join(self._words[token] for token in answer.tokens if token not in self._eos)
        try:
            jsonschema.Draft202012Validator(
                schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
            ).validate(json.loads(text))
        except (ValueError, jsonschema.ValidationError) as error:
            self._count("DOES NOT HOLD", answer)
            print(json.dumps({"schema": schema, "text": repr(text), "error": str(error)[:300]}), file=sys.stderr)
            return False
        self._count("valid", answer)
        return True

    def _count(self, what: str, answer: RingAnswer) -> None:
        self._figures[what] += 1
        self._figures["tokens"] += len(answer.tokens)


def allowed(wanted: int, seed: int, figures: Counter[str]) -> list[dict[str, Any]]:
    """The first `wanted` schemas that a node accepts."""
    child, found = ReadyChild(), []
    for schema in schemas(seed):
        try:
            check({"": Grammar(kind="json_schema", source=json.dumps(schema))}, child.run)
        except UsageError as error:
            figures["refused"] += 1
            figures[f"refused: {error.what}"[:100]] += 1
            continue
        found.append(schema)
        if len(found) == wanted:
            return found
    raise AssertionError("There are always more.")


def main() -> int:
    """Exit with 1 if a document does not hold or continues differently."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schemas", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    figures: Counter[str] = Counter()
    asked, dice, started = allowed(args.schemas, args.seed, figures), random.Random(args.seed), monotonic()
    with TemporaryDirectory(prefix="mc-shapes-") as folder:
        models = [DEMO_MODEL, *(Path(folder) / family for family in ("llama", "qwen3"))]
        for seed, model in enumerate(models[1:], args.seed):
            make_model(model, model.name, layers=6, seed=seed)
        pairs = [(model, *ring) for model in models for ring in RINGS]
        parts = [asked[number :: len(pairs)] for number in range(len(pairs))]
        for (model, topology, macs), part in zip(pairs, parts, strict=True):
            config, eos = read_settings(model).config, sorted(Tokens.load(model).eos)
            cuts = [config["num_hidden_layers"] * number // macs for number in range(1, macs)]
            words = read_vocabulary(model, config["vocab_size"])
            before = Counter(figures)
            with worker_ring(model, cuts, topology=topology, rows=ROWS, chunk=8) as ring:
                search = Search(ring, words, eos, figures)
                rest = iter(part)
                while some := list(islice(rest, ROWS + QUEUE_LIMIT)):
                    search.run(some, dice)
            print(model.name, topology, macs, dict(figures - before), file=sys.stderr, flush=True)
    print(json.dumps({**figures, "seconds": round(monotonic() - started)}, indent=1, ensure_ascii=False))
    return 1 if any(name.isupper() or name.startswith("ENDED BY") for name in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
