"""Trains the demo model: `prepare` turns the corpus into token ids on any CPU, `fit` trains on them with PyTorch.

The same seed makes the same data; the weights depend on the device's kernels, too.
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable, Iterator
from math import cos, pi
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.demo_model.network import Parameters, Size, forward, new_parameters, rotation

TOKENS_FILE: Final = "tokens.bin"
STARTS_FILE: Final = "starts.bin"
TOKENIZER: Final = Path(__file__).parents[2] / "core" / "demo" / "macluster-demo" / "tokenizer.json"

# share of the steps by length of their rows: short rows begin with a fresh conversation more often
_LENGTHS: Final = ((192, 0.65), (768, 0.35))
_BATCH_TOKENS: Final = 65_536
_NOISE: Final = 0.1
_PART_BYTES: Final = 12 << 20
_REPORT_STEPS: Final = 100
_END, _ASSISTANT = 0, 2


class Recipe(NamedTuple):
    """How to train."""

    seed: int = 0
    steps: int = 8000
    minutes: float = 9.0  # a slow device makes fewer steps to end in time
    rate: float = 2e-3
    warm_up: int = 200  # steps until the rate is full
    decay: float = 0.1
    batch: int = _BATCH_TOKENS  # tokens a step
    compiled: bool = False
    begin: Path | None = None  # weights to start from; None: random ones


def prepare(out: Path, seed: int, scale: float, tokenizer_file: Path) -> dict[str, int]:
    """Write token ids (uint16) and the starts of conversations (uint32) of the corpus."""
    from tokenizers import Tokenizer

    from tests.demo_model.corpus import conversation_text, generate

    out.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    texts = [conversation_text(conversation) for conversation in generate(seed, scale)]
    encoded = [e.ids for e in tokenizer.encode_batch(texts)]
    lengths = np.array([len(ids) for ids in encoded], dtype=np.int64)
    starts = np.concatenate(([0], np.cumsum(lengths)[:-1])).astype(np.uint32)
    ids = np.fromiter((i for conversation in encoded for i in conversation), dtype=np.uint16, count=int(lengths.sum()))
    ids.tofile(out / TOKENS_FILE)
    starts.tofile(out / STARTS_FILE)
    return {"conversations": len(texts), "tokens": len(ids), "longest": int(lengths.max())}


def fit(data: Path, out: Path, recipe: Recipe, size: Size) -> float:
    """Train, write float32 weights in .npz parts, and return the last mean loss."""
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
    began, step, progress, loss_sum = time.monotonic(), 0, 0.0, torch.zeros((), device=device)
    mean_loss = 0.0
    while progress < 1:
        step += 1
        # a device too slow for all steps ends in time, with the rate as low as after all of them
        progress = max(step / recipe.steps, (time.monotonic() - began) / (60 * recipe.minutes))
        for group in optimizer.param_groups:
            group["lr"] = recipe.rate * min(1, step / recipe.warm_up) * 0.5 * (1 + cos(pi * min(1, progress)))
        loss = loss_of(torch.from_numpy(next(rows)).to(device))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(parameters.values()), 1.0)
        optimizer.step()
        loss_sum += loss.detach()
        if step % _REPORT_STEPS == 0:
            mean_loss = float(loss_sum) / _REPORT_STEPS
            loss_sum.zero_()
            print(f"step {step}  loss {mean_loss:.4f}  {time.monotonic() - began:.0f} s", flush=True)
            if step == _REPORT_STEPS:
                began = time.monotonic()  # compiling takes minutes, and does not count
    _write(out, parameters)
    return mean_loss


def _loss_function(
    torch: Any, parameters: Parameters, size: Size, device: str, *, compiled: bool
) -> Callable[[Any], Any]:
    turns = rotation(torch, size, 1024, device)

    def loss(batch: Any) -> Any:
        """Mean cross entropy over the assistant's tokens, end token included."""
        with torch.autocast(device, dtype=torch.bfloat16):
            logits = forward(torch, parameters, size, batch[:, :-1, 0], turns)
        flat = logits.float().flatten(0, 1)
        each = torch.nn.functional.cross_entropy(flat, batch[:, 1:, 0].flatten(), reduction="none")
        counts = batch[:, 1:, 1].flatten().float()
        return (each * counts).sum() / counts.sum().clamp(min=1)

    # one compilation for each length of rows
    result: Callable[[Any], Any] = torch.compile(loss, dynamic=False) if compiled else loss
    return result


def _optimizer(torch: Any, parameters: Parameters, recipe: Recipe) -> Any:
    matrices = [p for p in parameters.values() if p.dim() > 1]
    vectors = [p for p in parameters.values() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": recipe.decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=recipe.rate, betas=(0.9, 0.95), eps=1e-8)


def _rows(data: Path, recipe: Recipe, vocab: int) -> Iterator[NDArray[np.int64]]:
    """Endless batches (rows, length + 1, 2): token ids, and 1 where the token is the assistant's.

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
        # the start of any row, then the tokens after it; after the end of the file it continues at the start
        first = random.choice(starts, size=max(1, recipe.batch // length))
        spots = (first[:, None] + np.arange(length + 1)) % len(ids)
        tokens = ids[spots].astype(np.int64)
        # in half of the rows some tokens of the user are replaced: the sense must come from all of them together
        swap = heard[spots] & (random.random(spots.shape) < _NOISE) & (random.random((len(spots), 1)) < 0.6)
        tokens[swap] = random.integers(_ASSISTANT + 1, vocab, size=int(swap.sum()))
        yield np.stack((tokens, mask[spots].astype(np.int64)), axis=-1)


def spoken(ids: NDArray[np.uint16]) -> NDArray[np.bool_]:
    """True for each token of the assistant: after its mark, up to and with the end."""
    opened = np.cumsum(ids == _ASSISTANT) - np.cumsum(ids == _END)
    inside: NDArray[np.bool_] = ((opened > 0) | (ids == _END)) & (ids != _ASSISTANT)
    return inside


def _write(out: Path, parameters: Parameters) -> None:
    arrays = {name: p.detach().float().cpu().numpy() for name, p in parameters.items()}
    parts: list[dict[str, Any]] = [{}]
    for name, array in arrays.items():
        if sum(a.nbytes for a in parts[-1].values()) + array.nbytes > _PART_BYTES:
            parts.append({})
        parts[-1][name] = array
    for number, part in enumerate(parts, 1):
        np.savez(out / f"weights-{number}-of-{len(parts)}.npz", **part)


def read_weights(directory: Path, size: Size) -> dict[str, NDArray[np.float32]]:
    """The float32 arrays of all parts that `fit` wrote; raises ValueError if they are not of this `size`."""
    arrays: dict[str, NDArray[np.float32]] = {}
    for part in sorted(directory.glob("weights-*.npz")):
        with np.load(part, allow_pickle=False) as stored:
            arrays |= {name: stored[name] for name in stored.files}
    if {name: array.shape for name, array in arrays.items()} != size.shapes():
        raise ValueError(f"The weights in {directory} are not those of this network.")
    return arrays


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.demo_model.train", description="Train the demo model.")
    commands = parser.add_subparsers(dest="command", required=True)
    first = commands.add_parser("prepare", help="turn the corpus into token ids")
    first.add_argument("data", type=Path)
    first.add_argument("--scale", type=float, default=1.0, help="size of the corpus")
    first.add_argument("--tokenizer", type=Path, default=TOKENIZER)
    second = commands.add_parser("fit", help="train on them; needs PyTorch")
    second.add_argument("data", type=Path)
    second.add_argument("weights", type=Path)
    second.add_argument("--steps", type=int, default=Recipe().steps)
    second.add_argument("--minutes", type=float, default=Recipe().minutes, help="at most (default %(default)s)")
    second.add_argument("--rate", type=float, default=Recipe().rate, help="highest learning rate (default %(default)s)")
    second.add_argument("--begin", type=Path, help="weights to start from (default: random ones)")
    second.add_argument("--batch", type=int, default=Recipe().batch, help="tokens a step (default %(default)s)")
    second.add_argument("--compile", dest="compiled", action="store_true", help="compile the step first")
    for command in (first, second):
        command.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.command == "prepare":
        print(prepare(args.data, args.seed, args.scale, args.tokenizer))
    else:
        recipe = Recipe(**{name: getattr(args, name) for name in Recipe._fields if hasattr(args, name)})
        fit(args.data, args.weights, recipe, Size())


if __name__ == "__main__":
    main()
