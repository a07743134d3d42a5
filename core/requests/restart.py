"""Restart the node: request and response. Every version must understand both."""

from __future__ import annotations

from core.requests.body import Body


class RestartOrder(Body, frozen=True, kw_only=True):
    """Start the node again with the same options."""

    go: bool = False  # False: only report what that ends


class RestartReport(Body, frozen=True, kw_only=True):
    """The node, and what ends with it."""

    version: str
    started_at: float  # seconds since the epoch; another one after a restart
    is_answering: bool = False
    model: str = ""  # loaded, with layers on this Mac
    led_by: str = ""  # name of the Mac that loaded it, "" if this one
    answers: int = 0  # of that Mac
