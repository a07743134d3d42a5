"""Draws the pictures of the README from the real app over the real demo."""
