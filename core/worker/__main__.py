"""`python -m core.worker`: started by a node, never by hand.

The pipe is opened before mlx is imported, which takes a while, so that the worker also ends if its node goes meanwhile.
"""

import gc

from core.worker.pipe import private_pipe

gc.disable()  # imports leave no garbage
inbox, outbox = private_pipe()

from core.models.files.child_start import say_hello  # noqa: E402
from core.models.lean_imports import import_for_layers_only  # noqa: E402

import_for_layers_only()

from core.worker.main import main  # noqa: E402

gc.freeze()
gc.enable()

say_hello()
main(inbox, outbox)
