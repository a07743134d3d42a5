"""Limits for counts and sizes in a config.json, which become Python objects one by one."""

from __future__ import annotations

import re
from math import isfinite
from typing import Any, Final

from core.errors import BadModel
from core.models.files.checked_files import OTHER_VERSION

MAX_COUNT: Final = 10_000
MAX_SIZE: Final = 1 << 27

_COUNT: Final = re.compile(r"(layers?|blocks?|loops?|experts?|heads?|groups?|^loop_num)$")
_NUMBER: Final = re.compile(r"_(heads|window)$")
_FINITE: Final = re.compile(r"_(heads|window|pattern)$")
_SIZE: Final = re.compile(r"(_size|_dims?|_rank|_inner|_embd|_model|_vocab|_state|_width)$")


def check_settings(config: dict[str, Any], name: str) -> None:
    """Raise BadModel for an impossible count or size anywhere in the config.json of the model `name`."""
    open_values: list[Any] = [config]
    while open_values:
        value = open_values.pop()
        if isinstance(value, list):
            open_values.extend(v for v in value if isinstance(v, dict | list))
            continue
        for key, setting in value.items():
            if isinstance(setting, dict | list):
                open_values.append(setting)
            if not _makes_sense(key, setting):
                what = f"config.json in {name} has {key!r} = {str(setting)[:60]!r}, which makes no sense."
                raise BadModel(what, OTHER_VERSION)


def _makes_sense(key: str, setting: Any) -> bool:
    if isinstance(setting, dict | str):
        return not _NUMBER.search(key)
    if not isinstance(setting, int | float):
        return True
    if _FINITE.search(key) and isinstance(setting, float) and not isfinite(setting):
        return False
    if _COUNT.search(key):
        return 0 <= setting <= MAX_COUNT
    # some families mean "no limit" by -1
    return not _SIZE.search(key) or -1 <= setting <= MAX_SIZE
