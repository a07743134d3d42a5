"""A list that keeps its cursor on the same item when the list changes."""

from __future__ import annotations

from typing import ClassVar, Generic, TypeVar

from textual.content import Content
from textual.widgets.option_list import Option

from tui.widgets.cursor_list import CursorList

Item = TypeVar("Item")


class ItemList(CursorList, Generic[Item]):
    """One line per item. Subclasses name the field that identifies an item, and draw the items."""

    KEY: ClassVar[str]

    def __init__(self, *, id: str, items: tuple[Item, ...] = (), first: str = "") -> None:
        super().__init__(*(Option("") for _ in items), id=id, markup=False)
        self._items = items
        self._rows = [Content("")] * len(items)
        self._first = first

    def key_of(self, item: Item) -> str:
        return str(getattr(item, self.KEY))

    def rows_of(self, items: tuple[Item, ...], width: int) -> list[Content]:
        raise NotImplementedError

    def place_without(self, before: int) -> int:
        return 0

    @property
    def pointed(self) -> Item | None:
        at = self.highlighted
        return self._items[at] if at is not None and at < len(self._items) else None

    def show_items(self, items: tuple[Item, ...]) -> None:
        key = self._pointed_key
        self._items = items
        self._draw(key)

    def on_resize(self) -> None:
        self._draw(self._pointed_key)

    @property
    def _pointed_key(self) -> str:
        pointed = self.pointed
        return self._first if pointed is None else self.key_of(pointed)

    def _draw(self, key: str) -> None:
        width = self.scrollable_content_region.width
        if width <= 0:
            return
        before, rows = self.highlighted or 0, self.rows_of(self._items, width)
        if len(rows) == len(self._rows):
            for at, (new, old) in enumerate(zip(rows, self._rows, strict=True)):
                if not new.is_same(old):
                    self.replace_option_prompt_at_index(at, new)
        else:
            self.clear_options()
            self.add_options([Option(row) for row in rows])
        self._rows = rows
        keys = [self.key_of(item) for item in self._items]
        self.highlighted = keys.index(key) if key in keys else self.place_without(before) if keys else None
