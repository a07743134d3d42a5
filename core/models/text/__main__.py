"""`python -m core.models.text`: the tokenizer process, started by a node."""

import gc

gc.disable()  # imported objects are no garbage

from core.models.lean_imports import import_for_text_only  # noqa: E402

import_for_text_only()

from core.models.text.tokenizing import main  # noqa: E402

gc.freeze()
gc.enable()

main()
