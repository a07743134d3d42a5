"""SVG to PNG by rsvg-convert (Debian: librsvg2-bin, with fonts-firacode)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ZOOM = "1.5"


def require() -> None:
    if not shutil.which("rsvg-convert"):
        sys.exit("Install rsvg-convert first (Debian: librsvg2-bin fonts-firacode; macOS: brew install librsvg).")


def write(name: str, svg: str) -> None:
    target = HERE / f"{name}.png"
    subprocess.run(["rsvg-convert", "-z", ZOOM, "-o", str(target)], input=svg.encode(), check=True)
    print(target.name)
