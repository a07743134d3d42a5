"""Makes tiny models of random weights."""
