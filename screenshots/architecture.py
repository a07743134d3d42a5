"""README's picture of the architecture: every room as a row, every import between rooms as an arc, from the imports.

The rows are the import contracts of pyproject.toml, from the top floor down. An arc that climbs would stand on the
left, in red; there may be none.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

import grimp

ROOT: Final = Path(__file__).parents[1]
PICTURE: Final = Path(__file__).parent / "architecture.svg"
PACKAGES: Final = ("core", "tui")

ROW: Final = 24
TOP: Final = 14
NAME_X: Final = 60
CAPTION_X: Final = 250
ARC_X: Final = 810
WIDTH: Final = 1120
COLOURS: Final = {"tui": "#2a78b8", "core.node": "#b3541e", "core.models": "#4b7f36", "core": "#7a4fa3"}


def rooms() -> list[str]:
    """Every room, from the top floor down: the contracts' layers, with a floor of rooms replaced by its rooms."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    floors = {parent: layers for contract in contracts for parent, layers in _layers(contract)}

    def within(room: str) -> list[str]:
        return [inner for layer in floors[room] for inner in within(layer)] if room in floors else [room]

    everything = [room for package in ("tui", "core") for room in within(package)]
    # a contract may name a room that does not exist yet
    return [room for room in everything if _file_of(room).exists()]


def _layers(contract: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    if contract["type"] != "layers":
        return []
    names = [name.strip(" ()") for layer in contract["layers"] for name in layer.replace(":", "|").split("|")]
    if containers := contract.get("containers"):
        return [(container, [f"{container}.{name}" for name in names]) for container in containers]
    return [(names[0].rpartition(".")[0], names)]


def imports_between(found: Sequence[str]) -> set[tuple[str, str]]:
    graph = grimp.build_graph(*PACKAGES)
    pairs = {
        (room_of(importer, found), room_of(imported, found))
        for importer in graph.modules
        for imported in graph.find_modules_directly_imported_by(importer)
    }
    return {(source, target) for source, target in pairs if source and target and source != target}


def room_of(module: str, found: Sequence[str]) -> str:
    """The room that a module lies in; "" for a package that only holds rooms."""
    return max((room for room in found if f"{module}.".startswith(f"{room}.")), key=len, default="")


def caption(room: str) -> str:
    said = ast.get_docstring(ast.parse(_file_of(room).read_text())) or ""
    return " ".join(said.split()).split(". ")[0].rstrip(".")


def _file_of(room: str) -> Path:
    place = ROOT / room.replace(".", "/")
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


def drawn() -> str:
    """The picture as SVG."""
    found = rooms()
    middle = {room: TOP + ROW * row + ROW / 2 for row, room in enumerate(found)}
    height = TOP * 2 + ROW * len(found)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
        ' font-family="ui-sans-serif, Helvetica, Arial, sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for source, target in sorted(imports_between(found)):
        start, end = middle[source], middle[target]
        climbs = end < start
        side, edge = (-1, NAME_X - 12) if climbs else (1, ARC_X)
        reach = edge + side * (16 + abs(end - start) * 0.32)
        colour = "#d00000" if climbs else _colour(source)
        line = f"M{edge} {start:.0f} C{reach:.0f} {start:.0f} {reach:.0f} {end:.0f} {edge} {end:.0f}"
        parts.append(f'<path d="{line}" fill="none" stroke="{colour}" stroke-opacity="0.45"/>')
    for room, y in middle.items():
        said = caption(room)
        said = said if len(said) < 84 else f"{said[:82].rsplit(' ', 1)[0]} …"
        box = f'x="{NAME_X - 8}" y="{y - ROW / 2 + 2:.0f}" width="{ARC_X - NAME_X + 8}" height="{ROW - 4}" rx="4"'
        parts.append(f'<rect {box} fill="{_colour(room)}" fill-opacity="0.09"/>')
        parts.append(f'<text x="{NAME_X}" y="{y + 4:.0f}" font-weight="600" fill="{_colour(room)}">{room}</text>')
        parts.append(f'<text x="{CAPTION_X}" y="{y + 4:.0f}" fill="#444444">{escape(said)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _colour(room: str) -> str:
    return next(colour for prefix, colour in COLOURS.items() if f"{room}.".startswith(f"{prefix}."))


def main() -> None:
    PICTURE.write_text(drawn())
    print(PICTURE.name)


if __name__ == "__main__":
    main()
