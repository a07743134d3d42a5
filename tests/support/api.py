"""The API for other programs over a head's answers, with a simulated worker."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import msgspec
from msgspec.structs import replace

from core.events import ApiServed, PlanLoaded, PlanProposed, PlanUnloaded
from core.node.base.node_message import NodeMessage
from core.node.config import ApiOptions
from core.node.peers.messages import Leads
from core.node.peers.other_plans import OtherPlans
from core.node.public_api.api_answers import ApiAnswers
from core.node.public_api.api_clients import Clients
from core.node.public_api.load_on_request import LoadOnRequest
from core.node.public_api.public_api import PublicApi
from core.node.public_api.request_queue import RequestQueue
from core.node.public_api.room import ApiControl
from core.node.relay.relayed_answers import Relay
from core.requests.plans import LoadRequest
from core.trust.api_keys import ApiKeys
from core.trust.private_files import private_folder
from tests.support.answers import AnswersHarness
from tests.support.tasks import tasks_of

KEY = "sesame"


class Unlinked:
    """Links of a Mac that has none; `led` lists the plans that other Macs lead."""

    def __init__(self) -> None:
        self.led: dict[str, Leads] = {}

    async def send(self, device_id: str, message: NodeMessage) -> bool:
        return False

    def leaders(self) -> dict[str, Leads]:
        return self.led


class ServedHarness(AnswersHarness):
    """A node's answers served over the API; `asker` has a key."""

    served: ApiServed
    asker: httpx2.AsyncClient
    api: PublicApi
    control: ApiControl
    links: Unlinked

    disk: tuple[str, ...] = ()  # models on disk
    loads: list[str]

    async def begin_load(self, request: LoadRequest) -> None:
        """Record a load that a request started; `loaded` ends it."""
        self.loads.append(request.model)

    def loaded(self, name: str) -> None:
        """Make that model ready in place of the current one."""
        assert self.worker.led
        plan = replace(self.worker.led, model=name, plan_gen=self.worker.led.plan_gen + 1)
        self.bus.publish(PlanUnloaded(plan_gen=self.worker.led.plan_gen))
        self.worker.led, self.worker.is_ready = plan, True
        self.bus.publish(PlanProposed(plan=plan))
        self.bus.publish(PlanLoaded(plan_gen=plan.plan_gen, seconds=1.0))

    def waiting(self) -> RequestQueue:
        return self.api._answers.queue

    async def chat(self, **fields: Any) -> httpx2.Response:
        messages = [{"role": "user", "content": "hello"}]
        return await self.asker.post("/chat/completions", json={"messages": messages, **fields})


@asynccontextmanager
async def served_harness(folder: Path, model: Path, options: ApiOptions | None = None) -> AsyncIterator[ServedHarness]:
    private_folder(folder)
    harness = ServedHarness(folder, model)
    await harness.load()
    plan = harness.worker.led
    assert plan
    harness.bus.publish(PlanProposed(plan=plan))
    harness.bus.publish(PlanLoaded(plan_gen=plan.plan_gen, seconds=1.0))
    keys = ApiKeys(folder / "keys.json")
    keys.add("tests", 1.0, KEY)
    options, tasks = options or ApiOptions(port=0), tasks_of()
    clients = Clients(keys, harness.bus)
    harness.links = Unlinked()
    elsewhere = OtherPlans("", harness.bus, harness.links, harness.worker, relays=True)  # type: ignore[arg-type]
    name_of, check_trust = harness.bus.now.name_of, harness.answers.opening.check_trust
    relay = Relay(harness.links, elsewhere, tasks, name_of, check_trust)  # type: ignore[arg-type]
    harness.loads = []
    loading = LoadOnRequest(lambda: harness.disk, harness.begin_load, harness.bus) if options.allow_load else None
    answering = ApiAnswers(harness.answers, lambda: harness.bus.now, relay.model, tasks, options.queue, loading)
    config = msgspec.structs.replace(harness.node.config, api=options)
    node = dataclasses.replace(harness.node, config=config, tasks=tasks)
    harness.api = PublicApi(node, answering, keys, clients)
    harness.control = ApiControl(node, lambda: harness.api, keys, clients)
    harness.served = await harness.api.start()
    url = harness.served.url.replace("0.0.0.0", "127.0.0.1")
    headers = {"Authorization": f"Bearer {KEY}"}
    try:
        async with httpx2.AsyncClient(base_url=url, headers=headers, verify=False, timeout=60) as harness.asker:
            yield harness
    finally:
        await harness.api.stop()
        await harness.ends_all()
        await tasks.stop()
