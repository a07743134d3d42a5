"""Attackers of security.md §1 against real processes; SECURITY.md lists the promise that each test proves."""
