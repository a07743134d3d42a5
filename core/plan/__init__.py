"""Plan a split: which Mac gets which layers, in which topology, and how fast it will be."""
