"""Kills the head's node of a demo and starts it again on the same folder."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tui.cli.demo import START_S, Demo
from tui.cli.watch import Watch


async def kill_head(demo: Demo) -> None:
    """Kill the head's node and its worker, as a power cut does."""
    node = demo._nodes[0]
    node.kill()
    await asyncio.to_thread(node.wait)
    assert node.stdin
    node.stdin.close()


async def start_head(demo: Demo) -> Watch:
    """Start another node on the same home, linked with the others."""
    demo._nodes[0] = demo._launch(0, Path(demo.model))
    watch = demo.watches[0] = await demo._stack.enter_async_context(Watch(demo.home))
    await watch.attached(START_S, lambda: demo._nodes[0].poll() is None)
    await demo.find_each_other()

    def linked(w: Watch) -> bool:
        return sum(p.state == "connected" and p.budget_bytes > 0 for p in w.now.peers) == len(demo.budgets)

    await watch.until(linked, START_S, "Linking the nodes again")
    return watch
