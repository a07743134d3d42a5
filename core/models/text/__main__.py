"""`python -m core.models.text`: a tokenizer in a process of its own, started by a node, never by hand."""

import gc

gc.disable()  # nothing of what is imported is garbage

from core.models.lean_imports import import_for_text_only  # noqa: E402

import_for_text_only()

from core.models.text.tokenizing import main  # noqa: E402

gc.freeze()
gc.enable()

main()
