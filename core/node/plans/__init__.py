"""The plan that this Mac leads, from its choice through all losses of Macs."""
