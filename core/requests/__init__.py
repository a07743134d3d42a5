"""Bodies of the commands that a node takes on its unix socket, and what it answers."""
