"""Recovery of a loaded plan when a Mac is lost."""
