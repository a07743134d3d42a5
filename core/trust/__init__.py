"""Identity, pairing, the roster and trust levels."""
