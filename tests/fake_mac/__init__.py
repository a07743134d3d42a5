"""A Mac that Linux plays: its commands, its `sys.platform`, and a Python without what only Linux has."""
