"""Runs any slice of any mlx-lm model."""
