"""Checks an installed wheel: `python -m tests.installed WHEEL`.

It installs the wheel into its own environment, without this repository, and runs demo, serve, doctor and verify from
there. The dependencies are those of this environment.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from zipfile import ZipFile

from tests.support.nodes import free_port
from tests.support.wheels import installed, of_nobody

# only developers need these
LEFT_OUT = ("tests/", "screenshots/")
RUN_S = 240


def main(wheel: Path) -> None:
    """Run all checks; raises if one fails."""
    names = ZipFile(wheel).namelist()
    assert not [name for name in names if name.startswith(LEFT_OUT)], "the wheel holds what nobody needs who runs it"
    (sdist,) = wheel.parent.glob("*.tar.gz")
    with tarfile.open(sdist) as source:
        held = {name.partition("/")[2] for name in source.getnames()}
    assert {"tests/conftest.py", "screenshots/draw.py", "Makefile", "CHANGELOG.md", "SECURITY.md"} <= held
    with tempfile.TemporaryDirectory(prefix="mc-") as folder:
        program, environment = installed(wheel, Path(folder) / "env"), of_nobody(folder)

        def ran(*words: str) -> subprocess.CompletedProcess[str]:
            command = [str(program), *words]
            return subprocess.run(
                command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, text=True, timeout=RUN_S,
                stdout=subprocess.PIPE, check=False,
            )  # fmt: skip

        where = [str(program.parent / "python"), "-c", "import core; print(core.__file__)"]
        found = subprocess.run(where, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout
        assert found.startswith(folder), f"it runs {found.strip()}"
        assert ran("--version").stdout.startswith("macluster ")
        library = (
            "import macluster, sys; assert 'mlx.core' not in sys.modules; macluster.RingModel, macluster.local_ring"
        )
        subprocess.run([str(program.parent / "python"), "-c", library], cwd=folder, env=environment, check=True)
        assert ran("bench", "hop").returncode == 2, "a wheel offers a bench that it does not contain"
        doctor = json.loads(ran("doctor", "--host", "127.0.0.1", "--json").stdout)
        assert {"node", "memory", "programs"} <= {finding["name"] for finding in doctor}
        report = ran("verify", "--host", "127.0.0.1", "--json").stdout
        checks = json.loads(report)["checks"]
        assert platform.node() not in report
        assert [each for each in checks if not each["passed"] and each["skipped_because"] is None] == []
        assert {"install", "slices on the CPU", "hop", "stages"} <= {each["name"] for each in checks if each["passed"]}
        answer = json.loads(ran("demo", "--no-multicast", "--json").stdout)
        assert (len(answer["plan"]["stages"]), len(answer["tokens"]) > 8) == (3, True)
        model = str(Path(found).parent / "demo" / "macluster-demo")
        assert served(program, lambda: ran("load", model), folder, environment), "the API says nothing"
    print(f"{wheel.name}: {len(names)} files; version, doctor, verify, demo and serve run without the repository")


def served(program: Path, load: Callable[[], object], folder: str, environment: Mapping[str, str]) -> str:
    """The API's answer to a question after `load`.

    It runs the node that `macluster serve` becomes, on loopback and at free ports.
    """
    alone = ["--host", "127.0.0.1", "--port", "0", "--no-multicast", "--budget", "2", "--until-eof", "--key", "file"]
    api = ["--serve", "--tell", "json", "--api-port", str(free_port()), "--no-key"]
    command, pipe = [str(program), "node", *alone, *api], subprocess.PIPE
    with subprocess.Popen(command, cwd=folder, env=environment, stdin=pipe, stdout=pipe, text=True) as node:
        assert node.stdin
        assert node.stdout
        try:
            url = json.loads(node.stdout.readline())["url"]
            load()
            asked = {"model": "macluster-demo", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}
            request = urllib.request.Request(f"{url}/chat/completions", json.dumps(asked).encode())
            request.add_header("Content-Type", "application/json")
            with urllib.request.urlopen(request, timeout=RUN_S) as reply:
                return str(json.load(reply)["choices"][0]["message"]["content"])
        finally:
            node.stdin.close()
            node.wait(RUN_S)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
