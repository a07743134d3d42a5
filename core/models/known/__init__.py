"""A built-in list of hub models, available offline."""
