"""The roster: its format, rules, changes, transport and store."""
