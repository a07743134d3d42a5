"""Speed of the terminal UI, in a real pseudo-terminal."""
