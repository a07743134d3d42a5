"""Pure logic: which request runs next, how its tokens are chosen, and which prefixes stay in memory."""
