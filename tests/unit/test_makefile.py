"""The set-up that every target of the Makefile needs, with stand-ins for Python and uv."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# makes an environment whose own Python says where its packages are, and whose macluster ends with $STATUS
MAKES = """#!/bin/sh
echo "$(basename "$0") $*" >> "$TOLD"
case "$*" in
  *-c*) exit ${OLD:-0} ;;
  *venv*) for folder; do :; done; mkdir -p "$folder/bin" "$folder/lib" ;;
esac
printf '#!/bin/sh\\ncase "$*" in *purelib*) echo "%s/lib" ;; esac\\n' "$folder" > "$folder/bin/python"
printf '#!/bin/sh\\nexit %s\\n' "$STATUS" > "$folder/bin/macluster"
chmod 755 "$folder/bin/python" "$folder/bin/macluster"
"""


class SetUp:
    """Runs `make` where only these programs and those of a shell are found."""

    def __init__(self, folder: Path, *programs: str) -> None:
        self.folder, self.venv, self.told = folder, folder / "environment", folder / "told"
        self._path = folder / "path"
        self._path.mkdir()
        for name in ("sh", "basename", "mkdir", "chmod", "touch", "ln", "rm", "cat"):
            (self._path / name).symlink_to(shutil.which(name) or name)
        for name in programs:
            (self._path / name).write_text(MAKES)
            (self._path / name).chmod(0o755)

    def make(self, status: int = 0, *, old: bool = False) -> subprocess.CompletedProcess[str]:
        make = shutil.which("make")
        assert make
        return subprocess.run(
            [make, "--no-print-directory", "-C", str(ROOT), f"VENV={self.venv}", f"{self.venv}/.installed"],
            env={"PATH": str(self._path), "TOLD": str(self.told), "STATUS": str(status), "OLD": str(int(old))},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


def test_what_is_set_up_starts_before_it_counts(tmp_path: Path) -> None:
    ready = SetUp(tmp_path, "python3.12", "python3.11", "python3")
    shim = tmp_path / "path" / "python3.13"  # as of a manager of versions, which offers one that is not chosen
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    broken = ready.make(status=1)
    assert broken.returncode
    assert "macluster does not start" in broken.stderr
    assert not (ready.venv / ".installed").exists()
    assert ready.make().returncode == 0, "it is tried again"
    assert (ready.venv / ".installed").exists()
    assert {path.name: Path(os.readlink(path)) for path in (ready.venv / "lib").iterdir()} == {
        name: ROOT / name for name in ("core", "tui", "macluster.py")
    }, "no .pth file is needed, which Python skips where macOS hides it"
    assert {line.split()[0] for line in ready.told.read_text().splitlines()} == {"python3.12"}


@pytest.mark.parametrize(("programs", "used"), [(("python3", "uv"), "uv"), (("python3",), "")])
def test_where_python_is_too_old_uv_brings_one_or_the_line_to_type_is_said(
    programs: tuple[str, ...], used: str, tmp_path: Path
) -> None:
    ready = SetUp(tmp_path, *programs)
    ran = ready.make(old=True)
    assert (ran.returncode == 0) is bool(used), ran.stderr
    lines = ready.told.read_text().splitlines()
    assert (lines[-1].split()[0] == "uv") is bool(used)
    assert ("curl -LsSf https://astral.sh/uv/install.sh | sh" in ran.stderr) is not bool(used)
