"""Fuzzers of all code that reads foreign bytes before anyone is trusted: `python -m tests.fuzz --seconds 60`."""
