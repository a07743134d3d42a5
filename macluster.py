"""Run mlx-lm over a model that is split across several sealed workers on this Mac.

`local_ring` starts the workers, `RingModel` makes an mlx-lm model of them; any function of mlx-lm takes it:

    import mlx_lm
    from macluster import DEMO_MODEL, RingModel, local_ring

    tokenizer = mlx_lm.utils.load_tokenizer(DEMO_MODEL)
    question = [{"role": "user", "content": "How does macluster split a model?"}]
    prompt = tokenizer.apply_chat_template(question, add_generation_prompt=True)
    with local_ring(DEMO_MODEL, cuts=[7, 12]) as stages:
        print(mlx_lm.generate(RingModel(stages), tokenizer, prompt, max_tokens=60))

The ring runs as long as the `with` block. Layers before the first cut run in this process, each later stage in a worker
of its own. No node is needed, and a running one is not disturbed. Importing this module does not import mlx.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from core.demo import DEMO_MODEL
    from core.engine.ring_model import RingModel
    from core.local.local_ring import local_ring

__all__ = ["DEMO_MODEL", "RingModel", "local_ring", "main"]

_HOMES: Final = {
    "DEMO_MODEL": "core.demo",  # folder of the model that comes with macluster
    "RingModel": "core.engine.ring_model",
    "local_ring": "core.local.local_ring",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def main() -> None:
    """Run the command `macluster`, in which other packages named `core` or `tui` don't stand in for macluster's."""
    own = os.path.dirname(os.path.abspath(__file__))
    os.environ["PYTHONSAFEPATH"] = "1"  # the processes that it starts don't look into the folder of the user either
    if any(not (found := find_spec(name)) or found.origin != f"{own}/{name}/__init__.py" for name in ("core", "tui")):
        sys.path.insert(0, own)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (own, os.environ.get("PYTHONPATH"))))
    import_module("tui.cli.main").main()


if __name__ == "__main__":
    main()


def __dir__() -> list[str]:
    return sorted(__all__)


if __name__ == "__main__":
    from tui.cli.main import main

    main()
