"""Traced steps of a ring: phases of each stage, and the file that trace viewers open."""
