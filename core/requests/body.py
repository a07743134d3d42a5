"""Base types of all command bodies."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

import msgspec

Name = Annotated[str, msgspec.Meta(max_length=256, pattern=r"\A[^\0]*\Z")]
PathName = Annotated[str, msgspec.Meta(max_length=4096, pattern=r"\A[^\0]*\Z")]
Duration = Annotated[float, msgspec.Meta(ge=0, le=3600)]


class Body(msgspec.Struct, frozen=True, kw_only=True):
    """Base of command bodies. A client ignores unknown fields of a reply; the node refuses those of a request."""


class Done(Body, frozen=True, kw_only=True):
    """Response to a command without a result."""


def without_defaults(value: object) -> Any:
    """`value` as builtins without fields that have their defaults: a node that doesn't know them yet accepts it."""
    if isinstance(value, msgspec.Struct):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        defaults, tag = _defaults(type(value)), value.__struct_config__
        said = {name: without_defaults(field) for name, field in fields.items() if field != defaults[name]}
        return said if tag.tag is None else {tag.tag_field: tag.tag, **said}
    if isinstance(value, tuple):
        return [without_defaults(each) for each in value]
    return value


@cache
def _defaults(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {
        field.name: field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        for field in msgspec.structs.fields(kind)
    }
