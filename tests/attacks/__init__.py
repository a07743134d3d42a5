"""Attackers of security.md §1 against real processes; SECURITY.md says which promise each test proves."""
