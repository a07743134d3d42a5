"""Pair this Mac with another one."""
