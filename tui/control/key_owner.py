"""Widgets and screens whose keys come from a table of the key map."""

from __future__ import annotations

from typing import Any, ClassVar

from textual.binding import BindingType

from tui.control.actions import bindings
from tui.control.keymap import Action


class KeyOwner:
    """A mixin: `ACTIONS` of a subclass become its bindings, in addition to those of its base classes."""

    ACTIONS: ClassVar[tuple[Action, ...]] = ()
    BINDINGS: ClassVar[list[BindingType]] = []

    def __init_subclass__(cls, **options: Any) -> None:
        if "ACTIONS" in cls.__dict__:
            cls.BINDINGS = [*bindings(cls.ACTIONS)]
        super().__init_subclass__(**options)
