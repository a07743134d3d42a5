"""What every part of the node stands on: journal, bus, tasks, messages."""
