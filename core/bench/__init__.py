"""The benches that users run, and what every bench needs to report a result."""
