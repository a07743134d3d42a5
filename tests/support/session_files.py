"""The head of a saved session, for tests of files."""

from __future__ import annotations

from core.engine.sessions import SessionFile, prefix_hash

SESSION = SessionFile(
    model="m",
    fingerprint="f",
    mlx_lm="1",
    kv_bits=None,
    tokens=[1],
    prefix_hash=prefix_hash([1]),
    caches=1,
    messages=(),
    created_at=1.0,
)
