"""Rings, workers and Macs simulated on this machine, without nodes: for `verify`, benches, tests and library users."""
