"""How another Mac is let in."""
