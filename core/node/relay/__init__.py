"""Relay API requests to the Mac that leads the model."""
