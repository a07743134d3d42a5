"""The terminal: screens, keys and the macluster command."""
