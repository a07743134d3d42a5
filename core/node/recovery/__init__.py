"""What becomes of a plan when a Mac of it is lost."""
