"""The other Macs: finding them, the links to them, and their speed."""
