"""The model that the demo brings along."""
