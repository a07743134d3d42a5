"""A long run over Macs that come and go, to find figures that drift."""
