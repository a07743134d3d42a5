"""The HTTP API for other programs: requests, access, replies."""
