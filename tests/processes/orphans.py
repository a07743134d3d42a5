"""A node in miniature that kills itself while each of its workers is busy with something else.

`python -m tests.processes.orphans MODEL PORT FOLDER`: prints the process ids by the workers' activity as one line of
JSON, reads a line, and kills itself as soon as the last worker loads. The listener at PORT never answers.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from core.link.network_paths import NetworkPath
from core.local.bare_worker import HOST, LOAD_S, START_S, BareWorker
from core.local.macs import LocalMacs, make_macs
from core.local.plans import digest_of, plan_of
from core.models.files.model_folder import read_folder
from core.worker.messages import Connect, Join, Listening, Load, Loaded, Loading, Token
from tests.support.worker_ring import a_request

WHAT = ("idle", "dialling", "accepting", "computing", "loading")


def main(model: Path, port: int, folder: Path) -> None:
    macs = make_macs(folder, 2)
    layers = read_folder(model).layout().layers
    shared = plan_of(model.name, layers, (layers // 2,), macs, "private")
    alone = plan_of(model.name, layers, (), LocalMacs(macs.identities[:1], macs.cluster), "private")
    plans = dict.fromkeys(WHAT, shared) | {"computing": alone}
    workers = {what: BareWorker(int(what == "accepting")) for what in WHAT}
    for worker in workers.values():
        mac = macs.identities[worker.index]
        worker.send(Join(identity_folder=str(mac.key_path.parent), passphrase=mac.passphrase, host=HOST))
    loads = {w: Load(plan=plans[w], index=workers[w].index, directory=str(model)) for w in WHAT}
    for what, worker in workers.items():
        worker.expect(Listening, START_S)
        if what != "loading":
            worker.send(loads[what])
            worker.expect(Loaded, LOAD_S)
    for what in ("dialling", "accepting"):
        cluster, digest, ways = macs.cluster.encode(), digest_of(shared), (NetworkPath(HOST),)
        workers[what].send(Connect(plan=shared, digest=digest, cluster=cluster, ways=ways, next_port=port))
    workers["computing"].send(a_request([5, 6, 7], max_tokens=100_000))
    workers["computing"].expect(Token, LOAD_S)
    born = BareWorker(0)
    print(json.dumps({"born": born.pid, **{what: worker.pid for what, worker in workers.items()}}), flush=True)
    sys.stdin.readline()
    workers["loading"].send(loads["loading"])
    workers["loading"].expect(Loading, LOAD_S)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
