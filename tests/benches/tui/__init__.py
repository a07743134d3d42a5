"""How quick the terminal UI is, in a real pseudo-terminal."""
