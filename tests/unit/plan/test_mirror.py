"""Whether and where a mirror is kept, and the text about it."""

from __future__ import annotations

import pytest

from core.events import Plan, Stage
from core.models.files.cache_size import CacheSize
from core.models.slicing.split_profile import SplitProfile
from core.plan.mirror import wire_share, with_mirror
from core.settings import GB

KEYS = CacheSize(bytes_per_token=250_000)
WINDOW = CacheSize(window_bytes_per_token=250_000, window=1024)
STATE = CacheSize(fixed_bytes=8_000_000)
LARGE = CacheSize(fixed_bytes=9_000_000)


def a_plan(free_gb: float, macs: int = 3) -> Plan:
    """A plan whose Macs each keep 1 GB for 1000 tokens, a quarter in each layer; the head has `free_gb` left."""
    stages = tuple(
        Stage(
            device_id=name,
            peer=name,
            start=4 * at,
            stop=4 * at + 4,
            weight_bytes=GB,
            kv_bytes=GB,
            budget_bytes=int((2 + free_gb) * GB),
        )
        for at, name in enumerate(("studio", "mbp", "mini")[:macs])
    )
    return Plan(
        plan_gen=1,
        model="tiny",
        fingerprint="f",
        topology="private",
        layers=12,
        context=1000,
        chunk=16,
        stages=stages,
        output="studio",
    )


def a_profile(*caches: CacheSize) -> SplitProfile:
    """A profile whose layers keep these kinds in turn."""
    return SplitProfile(layers=12, cuts=(4, 8), caches=tuple(caches[n % len(caches)] for n in range(12)))


def hop_s(size: int, source: str, target: str) -> float:
    """A link of 100 MB/s; mini's is ten times as slow."""
    return 0.001 + size / (10e6 if source == "mini" else 100e6)


@pytest.mark.parametrize(
    ("free_gb", "macs", "token_s", "caches", "gigabytes", "said"),
    [
        pytest.param(9, 3, 4.0, [KEYS], 3, "5 % of the link and 3.0 GB", id="wanted"),
        pytest.param(9, 3, None, [KEYS], 3, "400 % of the link and 3.0 GB", id="wanted all the same"),
        pytest.param(2, 3, 4.0, [KEYS], 2, "2.0 of 3.0 GB there", id="as much as there is memory for"),
        pytest.param(0, 3, 4.0, [KEYS], 0, "studio has no memory left", id="no memory at all"),
        pytest.param(9, 1, 4.0, [KEYS], 1, "less than 1 % of the link and 1.0 GB", id="a worker to lose"),
        pytest.param(9, 3, 4.0, [KEYS, WINDOW], 3, "5 % of the link and 3.0 GB", id="windows"),
        pytest.param(9, 3, 4.0, [KEYS, STATE], 3.048, "4 % of the link and 3.0 GB there. 48.0 MB of", id="states"),
        pytest.param(9, 3, 4.0, [LARGE], 0, "state of a layer of tiny is over 8 MiB", id="a large state"),
    ],
)
def test_where_a_mirror_is_kept(
    free_gb: float,
    macs: int,
    token_s: float | None,
    caches: list[CacheSize],
    gigabytes: float,
    said: str,
) -> None:
    plan = with_mirror(a_plan(free_gb, macs), a_profile(*caches), token_s, hop_s)
    assert plan.mirror_bytes == round(gigabytes * GB)
    assert said in " ".join(plan.notes)


def test_the_last_link_carries_what_all_the_others_keep() -> None:
    carried_s = 2 * GB // 1000 / 10e6
    for profile in (None, a_profile(KEYS), a_profile(WINDOW)):
        assert wire_share(a_plan(9), profile, 2.0, hop_s) == pytest.approx(carried_s / 2.0)
