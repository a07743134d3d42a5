"""`python -m core.worker`: started by a node, never by hand."""

from core.worker.main import main

main()
