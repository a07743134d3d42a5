"""What a roster means here, and what a person can do about it."""
