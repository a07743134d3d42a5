"""Makes tiny models with random weights."""
