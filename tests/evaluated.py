"""Evaluation by the real lm-eval: `python -m tests.evaluated WHEEL`.

It installs the wheel with its extra `eval` into its own environment, and lets it ask three simulated Macs. The other
dependencies are those of this environment.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.nodes import free_port
from tests.support.wheels import add_extra, installed, of_nobody

ASK_S = 480
_BRIER = "tiny_choice brier_score"


def main(wheel: Path) -> None:
    """Run the evaluation; raises if a check fails."""
    with tempfile.TemporaryDirectory(prefix="mc-") as folder:
        program = installed(wheel, Path(folder) / "env")
        add_extra(wheel, Path(folder) / "env", "eval")
        # fetches nothing if installed before, and leaves nothing
        environment = {**of_nobody(folder), "HF_HUB_OFFLINE": "1", "HF_HOME": f"{folder}/hf"}
        command = [str(program), "demo", "--no-multicast", "--serve", str(free_port())]
        with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE) as demo:
            try:
                assert demo.stdout
                home = json.loads(demo.stdout.readline())["home"]
                words = [str(program), "--home", home, "eval", "tiny", "--json"]
                asked = subprocess.run(
                    words, cwd=folder, env=environment, timeout=ASK_S, check=True, stdout=subprocess.PIPE
                )
            finally:
                demo.terminate()
        told = json.loads(asked.stdout)
        assert {name.rpartition(" ")[2] for name in told["ring"]} == {"acc", "brier_score", "bleu"}
        brier = {where: told[where].pop(_BRIER) for where in ("ring", "one_process")}
        assert told["ring"] == told["one_process"], "what was chosen and written"
        # a likelihood is a sum of float32, whose last digits depend on how a prompt was cut
        assert brier["ring"] == pytest.approx(brier["one_process"], abs=1e-6)
    print(f"lm-eval says of three Macs what it says of one process: {told['ring']}, {brier}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
