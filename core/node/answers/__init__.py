"""Requests and what is written of them."""
