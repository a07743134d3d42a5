"""Shared by every room of the node: journal, bus, tasks, messages, local server."""
