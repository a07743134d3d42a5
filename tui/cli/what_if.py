"""Plans over imagined Macs, given by their memory budgets, without a node."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from core.demo import DEMO_MODEL
from core.errors import NodeUnreachable, UsageError
from core.events import Peer
from core.requests.plans import PlanPreview, PreviewRequest
from core.settings import GB, Home, hub_cache
from tui.client import NodeClient

MAX_GB = 1_000_000.0


def budgets_of(words: str, option: str) -> tuple[float, ...]:
    """Parse a list of GB, the head first. Raises UsageError that names the `option`."""
    try:
        budgets = tuple(float(part) for part in words.split(","))
    except ValueError:
        raise UsageError(f"{option} {words!r} is not a list of GB.", "Write it as 64,32,16.") from None
    if not all(0 < budget <= MAX_GB for budget in budgets):
        raise UsageError(f"Every budget of {option} must be above 0.", "Write it as 64,32,16.")
    return budgets


async def imagined_plan(home: Home, request: PreviewRequest, budgets_gb: Sequence[float]) -> PlanPreview:
    """Preview a model over Macs with these budgets. Raises ModelNotFound, BadModel, UnsupportedModel."""
    # only `macluster plan --macs` needs them
    from core.node.disks.local_models import LocalModels
    from core.node.ring.split_profiles import SplitProfiles
    from core.plan.preview import preview_of

    models = LocalModels([home.models, hub_cache()], home.hashes)
    entry = await models.find(await _listed(home, request.model))
    profiles = SplitProfiles(home.split_profiles)
    profile = await profiles.of(entry)
    macs = [
        Peer(device_id=f"mac{n}", name=f"mac {n}", budget_bytes=max(1, int(budget * GB)))
        for n, budget in enumerate(budgets_gb, 1)
    ]
    layout = await models.layout(entry)
    preview = await asyncio.to_thread(
        preview_of,
        request,
        model=entry.name,
        fingerprint=entry.fingerprint,
        layout=layout,
        peers=macs,
        profile=profile,
        longest=entry.context_max,
    )
    if plan := preview.plan:
        noted = msgspec.structs.replace(plan, notes=(*plan.notes, *entry.notes))
        preview = msgspec.structs.replace(preview, plan=noted)
    return await profiles.with_parts(entry, preview) if request.parts else preview


async def _listed(home: Home, name: str) -> str:
    """Path of the model that `macluster models` or the demo lists by this name, else the name."""
    paths = {DEMO_MODEL.name: str(DEMO_MODEL)}
    try:
        async with NodeClient(home) as client:
            paths |= {each.name: each.path for each in await client.models() if each.path}
    except NodeUnreachable:
        pass
    return paths.get(name, name)
