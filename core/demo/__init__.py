"""The model that the demo brings along."""

from importlib.resources import files
from pathlib import Path
from typing import Final

DEMO_MODEL: Final = Path(str(files("core.demo"))) / "macluster-demo"
