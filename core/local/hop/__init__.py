"""One hop of 8 KiB between two processes of this machine: sealed as between Macs, and over plain TCP."""
