"""Plans, and the Macs that run them."""
