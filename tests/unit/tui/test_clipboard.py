"""Copying on a Mac."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tui.control.clipboard import copy


async def test_pbcopy_takes_the_text_for_utf_8_whatever_the_locale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[str, Any] = {}

    async def communicate(text: bytes) -> None:
        told["text"] = text

    async def start(*_: str, **options: Any) -> SimpleNamespace:
        told.update(options)
        return SimpleNamespace(communicate=communicate, returncode=0)

    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    monkeypatch.delenv("LANG", raising=False)
    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    assert await copy("Müller", lambda _: None, tmp_path) == "Copied."
    assert (told["text"], told["env"]["LC_CTYPE"]) == ("Müller".encode(), "UTF-8")
