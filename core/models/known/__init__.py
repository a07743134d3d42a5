"""Models of the hub that are known without asking it."""
