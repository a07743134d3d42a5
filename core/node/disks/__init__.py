"""Which models and conversations lie on which disk, and how they get there."""
