"""Trains the demo model.

`python -m core.demo.training.train prepare --out DATA` makes the corpus, the tokenizer and the token ids on any CPU.
`python -m core.demo.training.train fit --data DATA --out WEIGHTS` trains on them; it needs PyTorch and numpy only.
`python -m core.demo.training.train --out DIR` does both, into DIR/data and DIR/weights.
The same seed makes the same data; the weights follow the seed as far as the kernels of the device do.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
from collections.abc import Callable, Iterator
from math import cos, pi
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from core.demo.training.network import Parameters, Size, forward, new_parameters, rotation

TOKENS_FILE: Final = "tokens.bin"
STARTS_FILE: Final = "starts.bin"
SIZE_FILE: Final = "size.json"
CURVE_FILE: Final = "curve.csv"

# share of the steps with rows of so many tokens: short rows begin with a fresh conversation more often
_LENGTHS: Final = ((128, 0.35), (256, 0.35), (512, 0.2), (1024, 0.1))
_BATCH_TOKENS: Final = 65_536
_NOISE: Final = 0.1
_PART_BYTES: Final = 12 << 20
_END, _ASSISTANT = 0, 2


class Recipe(NamedTuple):
    """How to train. `batch` counts tokens a step; `minutes` makes the steps fewer where the device is slow; `begin` is
    a directory with weights to go on from.
    """

    seed: int = 0
    steps: int = 6000
    minutes: float = 7.0
    rate: float = 2e-3
    warm_up: int = 200
    decay: float = 0.1
    batch: int = _BATCH_TOKENS
    compiled: bool = False
    begin: Path | None = None


def prepare(
    out: Path, seed: int, size: Size, scale: float = 1.0, *, outside: int = 0, tokenizer_file: Path | None = None
) -> dict[str, int]:
    """Writes tokenizer.json, token ids (uint16) and starts of conversations (uint32).

    The tokenizer is the one in `tokenizer_file`: weights that are there know only theirs. Without, it learns a new one.
    """
    from core.demo.training.corpus import generate
    from core.demo.training.vocabulary import conversation_text, read_tokenizer, train_tokenizer

    out.mkdir(parents=True, exist_ok=True)
    conversations = generate(seed, scale, outside)
    texts = [conversation_text(c) for c in conversations]
    if tokenizer_file:
        tokenizer = read_tokenizer(tokenizer_file, size.vocab)
    else:
        tokenizer = train_tokenizer((t for c in conversations for turn in c for t in turn), size.vocab)
    encoded = [e.ids for e in tokenizer.encode_batch(texts)]
    lengths = np.array([len(ids) for ids in encoded], dtype=np.int64)
    starts = np.concatenate(([0], np.cumsum(lengths)[:-1])).astype(np.uint32)
    ids = np.fromiter((i for conversation in encoded for i in conversation), dtype=np.uint16, count=int(lengths.sum()))
    ids.tofile(out / TOKENS_FILE)
    starts.tofile(out / STARTS_FILE)
    (out / "tokenizer.json").write_text(tokenizer.to_str(), "utf-8")
    (out / SIZE_FILE).write_text(json.dumps(size._asdict(), indent=1) + "\n", "utf-8")
    return {"conversations": len(conversations), "tokens": len(ids), "longest": int(lengths.max())}


def fit(data: Path, out: Path, recipe: Recipe, size: Size) -> float:
    """Trains and writes float32 weights in .npz parts and the loss curve; returns the last mean loss."""
    torch: Any = importlib.import_module("torch")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(recipe.seed)
    torch.set_float32_matmul_precision("high")
    out.mkdir(parents=True, exist_ok=True)
    parameters = new_parameters(torch, size, recipe.seed, device)
    if recipe.begin:
        with torch.no_grad():
            for name, array in read_weights(recipe.begin, size).items():
                parameters[name].copy_(torch.from_numpy(array))
    print(f"{sum(p.numel() for p in parameters.values()):,} parameters on {device}", flush=True)
    optimizer = _optimizer(torch, parameters, recipe)
    loss_of = _loss_function(torch, parameters, size, device, compiled=recipe.compiled and device == "cuda")
    rows = _rows(data, recipe, size.vocab)
    began, sums, curve = time.monotonic(), 0.0, []
    marks: list[float] = []
    kept: Any = torch.zeros((), device=device)
    last = 0
    step = 0
    while step < recipe.steps:
        step += 1
        for group in optimizer.param_groups:
            group["lr"] = _rate(recipe, step)
        batch = torch.from_numpy(next(rows)).to(device)
        loss = loss_of(batch)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(parameters.values()), 1.0)
        optimizer.step()
        kept += loss.detach()
        if step % 20 == 0 or step == recipe.steps:
            sums, last = float(kept) / (step - last), step
            kept.zero_()
            curve.append((step, sums))
            if step % 200 == 0 or step == recipe.steps:
                print(f"step {step}  loss {sums:.4f}  {time.monotonic() - began:.0f} s", flush=True)
        if step in (20, 120):
            # the first steps include warming up of the device
            marks.append(time.monotonic())
            recipe = _in_time(recipe, step, marks, began)
    _write(out, parameters, curve)
    return sums


def _loss_function(
    torch: Any, parameters: Parameters, size: Size, device: str, *, compiled: bool
) -> Callable[[Any], Any]:
    turns = rotation(torch, size, 1024, device)

    def loss(batch: Any) -> Any:
        """Mean cross entropy over what the assistant says, its end included."""
        with torch.autocast(device, dtype=torch.bfloat16):
            logits = forward(torch, parameters, size, batch[:, :-1, 0], turns)
        flat = logits.float().flatten(0, 1)
        each = torch.nn.functional.cross_entropy(flat, batch[:, 1:, 0].flatten(), reduction="none")
        counts = batch[:, 1:, 1].flatten().float()
        return (each * counts).sum() / counts.sum().clamp(min=1)

    # four lengths of rows: one compilation each
    result: Callable[[Any], Any] = torch.compile(loss, dynamic=False) if compiled else loss
    return result


def _optimizer(torch: Any, parameters: Parameters, recipe: Recipe) -> Any:
    matrices = [p for p in parameters.values() if p.dim() > 1]
    vectors = [p for p in parameters.values() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": recipe.decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=recipe.rate, betas=(0.9, 0.95), eps=1e-8)


def _in_time(recipe: Recipe, step: int, marks: list[float], began: float) -> Recipe:
    """Fewer steps if those between the two marks say that all would not end in time."""
    if len(marks) < 2:
        return recipe
    pace_s = (marks[1] - marks[0]) / 100
    left = int((recipe.minutes * 60 - (marks[1] - began)) / pace_s)
    if step + left >= recipe.steps:
        return recipe
    print(f"{1000 * pace_s:.0f} ms a step: {step + max(0, left)} steps instead of {recipe.steps}", flush=True)
    return recipe._replace(steps=step + max(0, left))


def _rate(recipe: Recipe, step: int) -> float:
    if step < recipe.warm_up:
        return recipe.rate * step / recipe.warm_up
    return recipe.rate * 0.5 * (1 + cos(pi * (step - recipe.warm_up) / max(1, recipe.steps - recipe.warm_up)))


def _rows(data: Path, recipe: Recipe, vocab: int) -> Iterator[NDArray[np.int64]]:
    """Endless batches (rows, length + 1, 2): token ids, and 1 where the token is the assistant's to say.

    A row begins where a conversation begins and runs on through the ones after it, as a long chat would.
    """
    ids = np.fromfile(data / TOKENS_FILE, dtype=np.uint16)
    mask = spoken(ids)
    heard = ~mask & (ids > _ASSISTANT)
    starts = np.fromfile(data / STARTS_FILE, dtype=np.uint32).astype(np.int64)
    random = np.random.default_rng(recipe.seed)
    lengths = [length for length, _ in _LENGTHS]
    shares = [share for _, share in _LENGTHS]
    while True:
        length = min(int(random.choice(lengths, p=shares)), recipe.batch)
        # the start of any row, then whatever follows; at the end of the file it goes on at the beginning
        first = random.choice(starts, size=max(1, recipe.batch // length))
        spots = (first[:, None] + np.arange(length + 1)) % len(ids)
        tokens = ids[spots].astype(np.int64)
        # in half of the rows some tokens of the person are others: the sense must come from all of them together
        swap = heard[spots] & (random.random(spots.shape) < _NOISE) & (random.random((len(spots), 1)) < 0.6)
        tokens[swap] = random.integers(_ASSISTANT + 1, vocab, size=int(swap.sum()))
        yield np.stack((tokens, mask[spots].astype(np.int64)), axis=-1)


def spoken(ids: NDArray[np.uint16]) -> NDArray[np.bool_]:
    """True for each token that the assistant says: after its mark, up to and with the end."""
    opened = np.cumsum(ids == _ASSISTANT) - np.cumsum(ids == _END)
    inside: NDArray[np.bool_] = ((opened > 0) | (ids == _END)) & (ids != _ASSISTANT)
    return inside


def _write(out: Path, parameters: Parameters, curve: list[tuple[int, float]]) -> None:
    arrays = {name: p.detach().float().cpu().numpy() for name, p in parameters.items()}
    parts: list[dict[str, Any]] = [{}]
    for name, array in arrays.items():
        if sum(a.nbytes for a in parts[-1].values()) + array.nbytes > _PART_BYTES:
            parts.append({})
        parts[-1][name] = array
    for number, part in enumerate(parts, 1):
        np.savez(out / f"weights-{number}-of-{len(parts)}.npz", **part)
    lines = ["step,loss", *(f"{step},{loss:.5f}" for step, loss in curve)]
    (out / CURVE_FILE).write_text("\n".join(lines) + "\n", "utf-8")


def read_weights(directory: Path, size: Size) -> dict[str, NDArray[np.float32]]:
    """The float32 arrays of all parts that `fit` wrote; raises ValueError if they are not of this `size`."""
    arrays: dict[str, NDArray[np.float32]] = {}
    for part in sorted(directory.glob("weights-*.npz")):
        with np.load(part, allow_pickle=False) as stored:
            arrays |= {name: stored[name] for name in stored.files}
    if {name: array.shape for name, array in arrays.items()} != size.shapes():
        raise ValueError(f"The weights in {directory} are not those of this network.")
    return arrays


def read_size(directory: Path) -> Size:
    """The network's shape that `prepare` wrote."""
    return Size(**json.loads((directory / SIZE_FILE).read_text("utf-8")))


def _parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m core.demo.training.train", description="Train the demo model.")
    sub = top.add_subparsers(dest="command", required=True)
    first = sub.add_parser("prepare", help="corpus, tokenizer and token ids")
    second = sub.add_parser("fit", help="train on prepared data; needs PyTorch")
    both = sub.add_parser("all", help="both, into OUT/data and OUT/weights")
    for parser in (first, both):
        parser.add_argument("--scale", type=float, default=1.0, help="size of the corpus, for a rehearsal")
        parser.add_argument("--outside", type=int, default=0, help="so many more questions from outside")
        parser.add_argument("--tokenizer", type=Path, help="a tokenizer.json that is there (default: a new one)")
        for name in ("vocab", "layers", "intermediate"):
            parser.add_argument(f"--{name}", type=int, default=Size._field_defaults[name])
    second.add_argument("--data", type=Path, required=True)
    defaults = Recipe()
    for parser in (second, both):
        parser.add_argument("--steps", type=int, default=defaults.steps)
        parser.add_argument("--rate", type=float, default=defaults.rate)
        parser.add_argument("--warm-up", type=int, default=defaults.warm_up, help="steps until the rate is full")
        parser.add_argument("--batch", type=int, default=defaults.batch, help="tokens a step (default %(default)s)")
        parser.add_argument("--minutes", type=float, default=defaults.minutes, help="at most so long (default 7)")
        parser.add_argument("--begin", type=Path, help="weights to go on from (default: new ones)")
        parser.add_argument("--compile", dest="compiled", action="store_true", help="compile the step first")
    for parser in (first, second, both):
        parser.add_argument("--out", type=Path, required=True)
        parser.add_argument("--seed", type=int, default=0)
    return top


def main(arguments: list[str] | None = None) -> None:
    """The command line; without a subcommand it does both steps."""
    words = list(arguments) if arguments is not None else importlib.import_module("sys").argv[1:]
    if words and words[0].startswith("--") and words[0] != "--help":
        words = ["all", *words]
    args = _parser().parse_args(words)
    data, weights = args.out, args.out
    if args.command == "fit":
        data = args.data
    elif args.command == "all":
        data, weights = args.out / "data", args.out / "weights"
    if args.command != "fit":
        size = Size(vocab=args.vocab, layers=args.layers, intermediate=args.intermediate)
        made = prepare(data, args.seed, size, args.scale, outside=args.outside, tokenizer_file=args.tokenizer)
        print(made, flush=True)
    if args.command != "prepare":
        recipe = Recipe(**{name: getattr(args, name) for name in Recipe._fields if hasattr(args, name)})
        fit(data, weights, recipe, read_size(data))


if __name__ == "__main__":
    main()
