"""Files, messages, events and requests of each release, which every later version reads."""
