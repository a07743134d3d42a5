"""Commands that a node accepts on its unix socket, and their responses."""
