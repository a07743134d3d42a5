"""Sessions of real agents, asked again of the engine: how much of them is read that was read before."""
