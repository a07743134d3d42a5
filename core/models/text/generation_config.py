"""Sampling that a model recommends, for requests that leave it open."""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from core.requests.answers import ModelOption
from core.sampling_options import Sampling


def recommended(config: dict[str, Any]) -> Sampling:
    """Sampling by a generation_config.json. A missing or invalid value is the default of OpenAI's API."""
    found = {"temperature": 0.0 if config.get("do_sample") is False else 1.0}
    for name in get_args(ModelOption) if found["temperature"] else ():
        try:
            msgspec.convert({name: config[name]}, Sampling)
        except (KeyError, msgspec.ValidationError):
            continue
        found[name] = config[name]
    if found.get("top_p") == 1:
        found["top_p"] = 0.0  # both cut nothing off
    return msgspec.convert(found, Sampling)
