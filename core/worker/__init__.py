"""The process that owns layers: the ring loop, its stage, and on the head the engine."""
