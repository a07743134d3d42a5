"""The built-in list of hub models with their sizes, to check offline if they fit.

`tests.known_models.make_list` makes `known_models.json`, which names its date and source.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from core.events import Value
from core.models.files.cache_size import CacheSize
from core.models.files.hub_origin import Repo
from core.models.files.layout import Layout
from core.models.files.sharding import Sharding
from core.models.files.step_size import StepSize
from core.numbers import Size

LIST_FILE: Final = Path(__file__).with_name("known_models.json")

Source = Literal["hub", "published configs"]


class LayerRun(Value, frozen=True, kw_only=True):
    """A run of `layers` equal consecutive layers; bytes are per layer, as in `Layout`."""

    layers: Annotated[int, msgspec.Meta(ge=1)]
    layer_bytes: Size
    token_bytes: Size
    cache: CacheSize


class KnownModel(Value, frozen=True, kw_only=True):
    """A model of the hub. `revision`: the commit read; "" for a row made from a published config.

    `total_bytes`: weights of the language model; `quantization`: "4-bit", ... or the dtype; `context_max` in tokens;
    `text_only`: the model has a part for images, which is not used.
    """

    repo: Repo
    revision: Annotated[str, msgspec.Meta(pattern=r"\A([0-9a-f]{40})?\Z")] = ""
    licence: str
    model_type: str
    layers: int
    total_bytes: int
    quantization: str
    context_max: int
    text_only: bool = False
    runs: tuple[LayerRun, ...]
    embed_bytes: Size
    output_bytes: Size
    tied: bool
    step: StepSize
    sharding: Sharding
    tokenizer_bytes: Size

    @property
    def layout(self) -> Layout:
        """Byte sizes of the layers."""
        each = [run for run in self.runs for _ in range(run.layers)]
        return Layout(
            layers=len(each),
            layer_bytes=tuple(run.layer_bytes for run in each),
            token_bytes=tuple(run.token_bytes for run in each),
            embed_bytes=self.embed_bytes,
            output_bytes=self.output_bytes,
            tied=self.tied,
            caches=tuple(run.cache for run in each),
            step=self.step,
            sharding=self.sharding,
            tokenizer_bytes=self.tokenizer_bytes,
        )


class KnownModels(Value, frozen=True, kw_only=True):
    """The list, made on the day `made_on` (ISO 8601) from `source`."""

    made_on: str
    source: Source
    models: tuple[KnownModel, ...]


@cache
def known_models() -> KnownModels:
    return msgspec.json.decode(LIST_FILE.read_bytes(), type=KnownModels)
