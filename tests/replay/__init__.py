"""Sessions of real agents, sent again to the engine: how many tokens are read more than once."""
