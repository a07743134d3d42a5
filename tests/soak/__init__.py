"""A long run over Macs that come and go, and whether anything drifts."""
