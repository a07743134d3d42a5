"""`macluster keys`: lists the keys of the screens."""

from __future__ import annotations

import argparse

from tui.cli.output import print_facts, table


async def keys(args: argparse.Namespace) -> None:
    from tui.control.chosen_keys import ACTIONS
    from tui.control.preferences import config_file

    facts = {name: {"keys": action.keys.split(","), "does": action.title} for name, action in ACTIONS.items()}
    rows = [(name, action.keys, action.title) for name, action in ACTIONS.items()]
    how = f'\nTo change keys: [keys] in {config_file()}, such as  models = "ctrl+k,f7"'
    print_facts(args, facts, [*table(("action", "keys", "does"), rows, left=(0, 1, 2)), how])
