"""Shapes of everything that another version may read or send, as text, and one sample of each.

A shape has tags, fields and allowed words, not limits: `Bye{reason: str, left?: bool}`; `?` marks a field that may be
left out.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final, get_args

import msgspec
from msgspec import inspect as types

from core.engine.sessions import SessionFile
from core.events import AnyEvent
from core.models.files.block_map import _Head as BlockMapHead
from core.node.answers.token_log import AnswerRecord, Record
from core.node.base.node_message import BinaryMessage
from core.node.config import NodeConfig
from core.node.disks.conversations import _Indexed
from core.node.parts import NodeParts
from core.requests import answers, api, body, checks, conversations, disks, plans, trace, trust
from core.requests.body import Body
from core.settings import GB, Home, HomeFile
from core.trust.file_formats import JsonFile
from core.trust.roster import format as roster
from core.version import LOCAL, WIRE
from tests.support.node_messages import KINDS
from tui.cli import typed_lines  # holds the format of a file
from tui.control.preferences import _memory as theme_file

# what a sample's text is, the first that its pattern and length allow
TEXTS: Final = ("x", "a/b", "1" * 32, "f" * 64, "f" * 40, "123456", "a" * 26, "10.0.0.1", "word " * 24)
_REPLIES: Final[tuple[ModuleType, ...]] = (answers, api, body, checks, conversations, disks, plans, trace, trust)
_SEALED: Final[Mapping[str, tuple[Any, ...]]] = {
    Home.sessions.name: (SessionFile,),
    Home.conversations.name: (conversations.Conversation, _Indexed),
    Home.tokens.name: (AnswerRecord, Record),
    Home.models.name: (BlockMapHead,),
}


def dump() -> dict[str, Any]:
    """All shapes of today, with their versions."""
    taken = routes()
    others = {kind for module in _REPLIES for kind in vars(module).values() if _is_reply(kind, module)}
    return {
        "wire": WIRE[1],
        "messages": {_tag(kind): "bytes" if issubclass(kind, BinaryMessage) else shape(kind) for kind in KINDS},
        "local": LOCAL[1],
        "events": {_tag(kind): shape(kind) for kind in get_args(AnyEvent)},
        "requests": {name: shape(kind) if kind else "" for name, kind in taken.items()},
        "replies": {kind.__name__: shape(kind) for kind in others - set(taken.values())},
        "files": {name: {"format": number, "shapes": sorted(_files(name))} for name, number in formats().items()},
    }


def formats() -> dict[str, int]:
    return {file.name: file.format for file in vars(Home).values() if isinstance(file, HomeFile) and file.format}


def routes() -> dict[str, type[Body] | None]:
    """The body of each request that a node takes, by method and path."""
    with tempfile.TemporaryDirectory() as folder:
        config = NodeConfig(home=Home(Path(folder) / "h"), name="mac", host="127.0.0.1", port=0, budget_bytes=GB)

        async def rows() -> list[Any]:
            return list(NodeParts(config, asyncio.Event()).local_server._routes)

        return {
            f"{row.method} {row.path}": inspect.getclosurevars(row.handler).nonlocals.get("takes")
            for row in asyncio.run(rows())
        }


def shape(kind: Any) -> str:
    return _shape(types.type_info(kind), ())


def sample(kind: Any) -> Any:
    """A value of that type as JSON has it, every field of it filled."""
    return _sample(types.type_info(kind))


def _files(name: str) -> Iterable[str]:
    yield from (shape(kind) for kind in _SEALED.get(name, ()))
    modules = [module for each, module in sorted(sys.modules.items()) if each.startswith("core.")]
    found = [value for module in (*modules, typed_lines) for value in vars(module).values()]
    yield from {shape(file.kind) for file in (*found, theme_file()) if _is_file(file, name)}
    if name == Home.rosters.name:
        yield " ".join(each.format for each in (roster._HEAD, roster._MEMBER, roster._REVOKED))


def _is_file(value: object, name: str) -> bool:
    return isinstance(value, JsonFile) and value.file.name == name


def _is_reply(kind: object, module: ModuleType) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__module__ == module.__name__


def _tag(kind: type[msgspec.Struct]) -> str:
    return str(kind.__struct_config__.tag)


def _shape(info: types.Type, above: tuple[type, ...]) -> str:
    match info:
        case types.StructType(cls=cls) if cls in above:
            return "itself"
        case types.StructType():
            inside = [_field(each, (*above, info.cls)) for each in info.fields]
            fields = ", ".join(inside if info.array_like else sorted(inside))
            return f"{info.tag or ''}{'[]' if info.array_like else ''}{{{fields}}}"
        case types.UnionType():
            return " | ".join(sorted(_shape(each, above) for each in info.types))
        case types.LiteralType(values=values):
            return f"one of {' '.join(sorted(map(str, values)))}"
        case types.EnumType(cls=cls):
            return f"one of {' '.join(str(each.value) for each in cls)}"
        case types.DictType():
            return f"{{{_shape(info.key_type, above)}: {_shape(info.value_type, above)}}}"
        case types.TupleType():
            return f"({', '.join(_shape(each, above) for each in info.item_types)})"
        case types.CollectionType():
            return f"[{_shape(info.item_type, above)}]"
        case types.CustomType(cls=cls):
            return cls.__name__
    return type(info).__name__.removesuffix("Type").lower()


def _field(field: types.Field, above: tuple[type, ...]) -> str:
    return f"{field.encode_name}{'' if field.required else '?'}: {_shape(field.type, above)}"


def _sample(info: types.Type) -> Any:
    match info:
        case types.StructType():
            fields = {each.encode_name: _sample(each.type) for each in info.fields}
            named = {info.tag_field: info.tag} if info.tag_field else {}
            return [*named.values(), *fields.values()] if info.array_like else {**named, **fields}
        case types.UnionType():
            return _sample(next((each for each in info.types if not isinstance(each, types.NoneType)), info.types[0]))
        case types.LiteralType(values=values):
            return values[0]
        case types.EnumType(cls=cls):
            return next(iter(cls)).value
        case types.DictType():
            return {_sample(info.key_type): _sample(info.value_type)}
        case types.TupleType():
            return [_sample(each) for each in info.item_types]
        case types.CollectionType():
            return [_sample(info.item_type)] * (info.min_length or 1)
        case types.StrType():
            return next(text for text in TEXTS if _fits(text, info))
        case types.BytesType():
            return "YQ==" if not info.min_length else "YWFh" * 11
        case types.BoolType():
            return True
        case types.IntType() | types.FloatType():
            return max(1, info.ge or 0, (info.gt or 0) + 1) if info.le is None or info.le >= 1 else info.le
    return None


def _fits(text: str, info: types.StrType) -> bool:
    is_long = (info.min_length or 0) <= len(text) <= (info.max_length or sys.maxsize)
    return is_long and (not info.pattern or re.search(info.pattern, text) is not None)
