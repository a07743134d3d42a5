"""What keys do."""
