"""The node's events folded into values for the screens. Pure."""
