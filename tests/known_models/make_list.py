"""`python -m tests.known_models.make_list` makes the dated list of known models.

Reads the config and the safetensors headers of each listed model, and of each REPO, from the hub (HF_ENDPOINT,
HF_TOKEN): a few MB each. `--published` stays offline: it builds the model from `published_configs` with mlx-lm and
computes the sizes without evaluating anything.
"""

from __future__ import annotations

import argparse
import copy
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec
from huggingface_hub import HfApi, constants

from core.errors import MaclusterError
from core.models.files.hub_download import explained
from core.models.files.hub_download_messages import BeginOrder, Fetched
from core.models.files.hub_download_parts import begin
from core.models.files.hub_origin import read_origin
from core.models.files.layout import Layout, layout_of
from core.models.files.model_folder import read_folder
from core.models.files.model_info import context_of, quantization_of
from core.models.files.safetensors import Tensor
from core.models.known.known_models import LIST_FILE, KnownModel, KnownModels, LayerRun, Source, known_models
from tests.known_models.published_configs import PUBLISHED, Published

_GROUP: Final = 64


def row_of(
    repo: str,
    revision: str,
    licence: str,
    config: dict[str, Any],
    tensors: Mapping[str, Tensor],
    tokenizer_file_bytes: int = 0,
) -> KnownModel:
    """Row of the list for this config and these headers. Raises BadModel."""
    layout = layout_of(config, tensors, repo, tokenizer_file_bytes)
    return KnownModel(
        repo=repo,
        revision=revision,
        licence=licence,
        model_type=config["model_type"],
        layers=layout.layers,
        total_bytes=layout.total_bytes,
        quantization=quantization_of(config, tensors),
        context_max=context_of(config),
        text_only="vision_config" in config,
        runs=_runs_of(layout),
        embed_bytes=layout.embed_bytes,
        output_bytes=layout.output_bytes,
        tied=layout.tied,
        step=layout.step,
        sharding=layout.sharding,
        tokenizer_bytes=layout.tokenizer_bytes,
    )


def _runs_of(layout: Layout) -> tuple[LayerRun, ...]:
    """Group equal consecutive layers into runs."""
    each = zip(layout.layer_bytes, layout.token_bytes, layout.caches, strict=True)
    return tuple(
        LayerRun(layers=len(list(alike)), layer_bytes=weights, token_bytes=token, cache=cache)
        for (weights, token, cache), alike in groupby(each)
    )


def from_hub(repo: str, below: Path) -> KnownModel:
    """Row from the hub's current commit; leaves settings and headers in the folder `below`. Raises BadModel, and as
    `begin`.
    """
    places: list[str] = []

    def note(fetched: Fetched) -> None:
        places.extend([fetched.place] if fetched.place else [])

    begin(BeginOrder(repo=repo, revision="main", below=str(below)), note)
    place = Path(places[0])
    origin = read_origin(place)
    commit = origin.commit if origin else ""
    card = HfApi(endpoint=constants.ENDPOINT).model_info(repo, revision=commit).card_data
    licence = str(card.get("license") or "") if card else ""
    folder = read_folder(place)
    tokenizer = folder.settings.contents.get("tokenizer.json", b"")
    return row_of(repo, commit, licence, folder.config, folder.tensors, len(tokenizer))


def from_published(published: Published) -> KnownModel:
    config, tensors = _built(published)
    return row_of(published.repo, "", published.licence, config, tensors)


def _built(published: Published) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Config and headers that a conversion of this model has."""
    import mlx.core as mx
    import mlx.nn as nn
    from mlx.utils import tree_flatten
    from mlx_lm.utils import _get_classes

    names = {mx.bfloat16: "BF16", mx.float32: "F32", mx.uint32: "U32", mx.uint8: "U8"}
    config = copy.deepcopy(published.architecture.config)
    model_class, args_class = _get_classes(config)
    model: nn.Module = model_class(args_class.from_dict(config))
    model.set_dtype(mx.bfloat16)
    settings: dict[str, Any] = {"group_size": _GROUP, "bits": published.bits, "mode": "affine"}
    own = getattr(model, "quant_predicate", None)

    def wanted(path: str, module: nn.Module) -> bool | dict[str, Any]:
        if not hasattr(module, "to_quantized") or module.weight.shape[-1] % _GROUP:
            return False
        said: bool | dict[str, Any] = own(path, module) if own else True
        for pattern, form in published.others.items():
            said = dict(form) if re.search(pattern, path) else said
        if isinstance(said, dict):
            settings[path] = said
        return said

    nn.quantize(model, _GROUP, published.bits, class_predicate=wanted)
    tensors = {
        path: Tensor(dtype=names[array.dtype], shape=tuple(array.shape), nbytes=array.nbytes)
        for path, array in tree_flatten(model.parameters())
    }
    return config | {"quantization": settings}, tensors


def listed(rows: Iterable[KnownModel], source: Source) -> KnownModels:
    models = sorted(rows, key=lambda row: row.repo.casefold())
    return KnownModels(made_on=date.today().isoformat(), source=source, models=tuple(models))


def encoded(found: KnownModels) -> bytes:
    head = {"made_on": found.made_on, "source": found.source}
    lines = b",\n".join(msgspec.json.encode(model) for model in found.models)
    return msgspec.json.encode(head)[:-1] + b',"models":[\n' + lines + b"\n]}\n"


def _all_of_hub(repos: Iterable[str]) -> Iterator[KnownModel]:
    with TemporaryDirectory() as below:
        for repo in repos:
            print(repo, file=sys.stderr, flush=True)
            try:
                yield from_hub(repo, Path(below))
            except Exception as error:  # a library may raise anything; the other rows should be made
                problem = error if isinstance(error, MaclusterError) else explained(error, repo)
                print(f"  left out: {problem.what} {problem.fix}", file=sys.stderr)


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.known_models.make_list", description="Make the list again.")
    parser.add_argument("repo", nargs="*", metavar="REPO", help="additional models to list")
    parser.add_argument("--published", action="store_true", help="use published configs instead of the hub")
    parser.add_argument("--only", action="store_true", help="list only each REPO, drop the current list")
    parser.add_argument("--output", type=Path, default=LIST_FILE, metavar="FILE")
    args = parser.parse_args(arguments)
    if args.published:
        found = listed(map(from_published, PUBLISHED), "published configs")
    else:
        now = () if args.only else (model.repo for model in known_models().models)
        found = listed(_all_of_hub(dict.fromkeys([*now, *args.repo])), "hub")
    if not found.models:
        return 1
    args.output.write_bytes(encoded(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
