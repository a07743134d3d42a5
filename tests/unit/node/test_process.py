from __future__ import annotations

import argparse
from pathlib import Path

from core.node.options import add_options
from core.node.process import config_from


def test_where_programs_are_served_is_known_before_they_are(tmp_path: Path) -> None:
    """They may be served later, at the press of a key."""
    parser = argparse.ArgumentParser()
    add_options(parser)
    config = config_from(parser.parse_args(["--home", str(tmp_path), "--api-port", "4799"]))
    assert (config.api.port, config.serves) == (4799, False)
