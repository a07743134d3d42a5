"""The other Macs: where they are, the links to them, and how fast those are."""
