"""Words about all-reduces and the expected speed, for commands and screens."""

from __future__ import annotations

from core.requests.plans import Forecast
from tui.state.format import duration


def all_reduce_share(forecast: Forecast) -> str:
    """The share of the all-reduces in a token's time; "" without all-reduces."""
    if forecast.reduces_s is None:
        return ""
    return f"≈ {duration(forecast.reduces_s)} of each token's {duration(forecast.token_s)}"


def faster(forecast: Forecast) -> str:
    """How much faster than one Mac it is; "" if it isn't, which the advice says."""
    alone = forecast.alone_tokens_per_s
    if forecast.reduces_s is None or alone is None or forecast.tokens_per_s <= alone:
        return ""
    return f"Faster than this Mac alone: about {forecast.tokens_per_s:.1f} instead of {alone:.1f} tokens/s."
