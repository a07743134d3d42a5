"""`python -m core.node`: the node without a screen; `macluster node` becomes this."""

import gc

gc.disable()  # the imports leave no garbage, and looking for it takes an eighth of the start

from core.models.lean_imports import import_for_serving_only  # noqa: E402

import_for_serving_only()

from core.node.process import main  # noqa: E402

gc.freeze()
gc.enable()

main()
