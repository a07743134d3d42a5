"""Encrypted links between Macs: TLS, session handshake, seals, frames and liveness."""
