"""`python -m core.models.text`: a tokenizer in a process of its own, started by a node, never by hand."""

from core.models.lean_imports import import_for_text_only

import_for_text_only()

from core.models.text.tokenizing import main  # noqa: E402

main()
