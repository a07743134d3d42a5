"""Requests of programs that another Mac answers: asked there, and answered here."""
