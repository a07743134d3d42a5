"""`python -m tests.releases --write` records what this version writes and says, unless its release has a tag."""

from __future__ import annotations

import argparse
import json
import struct
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Final, get_args

import msgspec

from core.events import AnyEvent
from core.node.base.node_message import to_frame
from core.settings import Home
from core.version import RELEASE
from tests.releases import home
from tests.releases.shapes import dump, routes, sample
from tests.support.node_messages import EVERY

HERE: Final = Path(__file__).parent
FRAME: Final = struct.Struct("<BI")  # type, bytes of the body


def is_tagged(release: str) -> bool:
    asked = subprocess.run(["git", "tag", "--list", f"v{release}"], cwd=HERE, capture_output=True, check=True)
    return bool(asked.stdout.strip())


def write(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "shapes.json").write_text(json.dumps(dump(), indent=1, sort_keys=True) + "\n")
    frames = [to_frame(message) for message in EVERY]
    (folder / "frames.bin").write_bytes(b"".join(FRAME.pack(kind, len(body)) + body for kind, body in frames))
    events = [msgspec.json.encode(sample(kind)) for kind in get_args(AnyEvent)]
    (folder / "events.jsonl").write_bytes(b"".join(each + b"\n" for each in events))
    asked = [[name, sample(kind) if kind else None] for name, kind in sorted(routes().items())]
    (folder / "requests.jsonl").write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in asked))
    with tempfile.TemporaryDirectory() as made, tarfile.open(folder / "home.tar.gz", "w:gz") as archive:
        home.make(Home(Path(made) / "home"))
        archive.add(
            Path(made) / "home",
            "home",
            filter=lambda entry: entry.replace(uid=0, gid=0, uname="", gname="", deep=False),
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.releases", description=__doc__)
    parser.add_argument("--write", action="store_true", required=True)
    parser.parse_args()
    if is_tagged(RELEASE):
        raise SystemExit(f"{RELEASE} is released, and what it wrote stays: raise RELEASE in core/version.py.")
    write(HERE / RELEASE)
