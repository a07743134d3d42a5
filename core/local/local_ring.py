"""A ring of real workers for mlx-lm's own functions, with its head in this process.

Workers and sealed links are those of a cluster; no node is needed, and a running one is not disturbed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from core.engine.steps import TRY_S
from core.events import Topology
from core.link.data_plane import listen
from core.link.network_paths import NetworkPath
from core.link.rekey_limits import KEY_LIMITS
from core.local.bare_worker import HOST, BareWorker, load_workers
from core.local.macs import make_macs
from core.local.plans import plan_of
from core.local.worker_ring import LINK_S
from core.models.files.model_folder import read_folder
from core.models.metal import obey_device
from core.models.slicing.loading import load_slice
from core.plan.stage_roles import role_of
from core.plan.topology import DEFAULT_TOPOLOGY
from core.worker.main import row_bytes
from core.worker.messages import Connect, Linked, Load
from core.worker.neighbours import Neighbours
from core.worker.pipeline import Pipeline
from core.worker.ring import Ring
from core.worker.ring_forward import RingForward
from core.worker.stage import LoadedStage
from core.worker.telemetry import StageMeter


@contextmanager
def local_ring(model_dir: Path, cuts: Sequence[int], topology: Topology = DEFAULT_TOPOLOGY) -> Iterator[RingForward]:
    """Split the model in `model_dir` before the layers `cuts` and start a worker for each stage after the first.

    Pass the result to `RingModel`. The head's layers run in this process.

        with local_ring(folder, cuts=[7, 12]) as stages:
            logits = RingModel(stages)(tokens)

    Raises ModelError for a model that can't be loaded, IllegalCut where it can't be cut.
    """
    obey_device()
    with ExitStack() as stack:
        macs = make_macs(Path(stack.enter_context(TemporaryDirectory(prefix="macluster-ring-"))), len(cuts) + 1)
        plan = plan_of(model_dir.name, read_folder(model_dir).layout().layers, cuts, macs, topology)
        listener = stack.enter_context(listen(HOST))
        workers = [stack.enter_context(closing(BareWorker(index))) for index in range(1, len(plan.stages))]
        load_workers(
            dict(zip(workers, macs.identities[1:], strict=True)),
            {worker: Load(plan=plan, index=worker.index, directory=str(model_dir)) for worker in workers},
        )
        ports = [*(worker.port for worker in workers), int(listener.getsockname()[1])]
        encoded, ways = macs.cluster.encode(), (NetworkPath(HOST),)
        told = [Connect(plan=plan, cluster=encoded, ways=ways, next_port=port) for port in ports]
        for worker in workers:
            worker.send(told[worker.index])
        meter = StageMeter(0)
        own = role_of(plan, 0)
        layers = load_slice(
            read_folder(model_dir), plan.head.start, plan.head.stop, embed=own.embeds, output=own.outputs
        )
        neighbours = Neighbours(told[0], 0, listener, macs.identities[0], row_bytes=row_bytes(plan, 0, layers))
        ring = stack.enter_context(closing(Ring(neighbours, meter, KEY_LIMITS)))
        pipeline = Pipeline(LoadedStage(layers, meter), plan, TRY_S)
        pipeline.link(ring)
        for worker in workers:
            worker.expect(Linked, LINK_S)
        yield RingForward(pipeline)
