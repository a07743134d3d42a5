"""The macluster command: one file a command group."""
