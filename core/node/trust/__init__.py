"""Trust between Macs: enforcing the roster, and the user's commands on it."""
