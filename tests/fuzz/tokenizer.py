"""A model's tokenizer.json: any rules give text and tokens or an error message, within the limits."""

from __future__ import annotations

import asyncio
import json
import signal
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from core.errors import MaclusterError, ModelError
from core.models.text.text_messages import Decode, Decoded, Encode, Encoded, EndStream, ReadTokenizer, TokenizerRead
from core.models.text.vocabulary import read_vocabulary
from core.node.answers import tokenizer_process
from core.node.answers.tokenizer_process import TokenizerProcess
from core.requests.answers import Message
from core.settings import MIB
from tests.fuzz.target import Target
from tests.support.maker import make_model

TOKENS: Final = range(40)
VOCABULARY: Final = 600
TEXT: Final = "Zwei Flüsse, 日本, and a 🐢 end of it. aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa! "


class Bench:
    """A model with changeable files, and a process that reads its tokenizer again and again."""

    def __init__(self) -> None:
        self._held = tempfile.TemporaryDirectory(prefix="mc-fuzz-")
        self.model = Path(self._held.name) / "bad"
        self.model.mkdir()
        make_model(self.model, "llama", layers=1, chat=False)
        self.good = (self.model / "tokenizer.json").read_bytes()
        self._runner = asyncio.Runner()
        self._process: TokenizerProcess | None = None
        tokenizer_process.MAX_RSS_BYTES = 1024 * MIB  # type: ignore[misc]

    def try_out(self, data: bytes) -> None:
        """Read, encode and decode with these rules; the process itself ends slow ones."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._runner.run(self._try_out(data))

    async def _try_out(self, data: bytes) -> None:
        file = self.model / "tokenizer.json"
        if self._process is None or self._process.is_over:
            file.write_bytes(self.good)
            self._process = await TokenizerProcess.start(self.model)
        file.write_bytes(data)
        with suppress(ModelError):
            read_vocabulary(self.model, VOCABULARY)
        try:
            await self._process.answer(ReadTokenizer(directory=str(self.model)), TokenizerRead)
            await self._process.answer(Encode(messages=(Message(role="user", content=TEXT),), raw=True), Encoded)
            await self._process.answer(Decode(stream="answer", tokens=list(TOKENS)), Decoded)
            await self._process.answer(EndStream(stream="answer"), Decoded)
        except MaclusterError as error:
            if not error.what.startswith(("The tokenizer", "tokenizer.json", "bad/")):
                raise

    def end(self) -> None:
        """End the process and remove the model."""
        if self._process:
            self._runner.run(self._process.end())
        self._runner.close()
        self._held.cleanup()


@cache
def _bench() -> Bench:
    return Bench()


def attack(data: bytes) -> None:
    """Read bytes as a tokenizer.json."""
    _bench().try_out(data)


_TEXTS = st.sampled_from(["a", "aa", "", "e", " ", "\u2581", "a" * 64, "\ufffd", "b\n", "🐢"])
_REGEXES = st.sampled_from(
    ["(a|a?)+$", "(a+)+b", ".*", "", "a{1,999}", "(?=a)", "\\p{L}+|\\s", "[", "(?<n>a)\\k<n>", "\\G"]
)
_PATTERN = st.one_of(
    st.builds(lambda text: {"String": text}, _TEXTS), st.builds(lambda rule: {"Regex": rule}, _REGEXES)
)
_REPLACE = st.builds(lambda pattern, text: {"type": "Replace", "pattern": pattern, "content": text}, _PATTERN, _TEXTS)
_SPLIT = st.builds(
    lambda pattern, how, invert: {"type": "Split", "pattern": pattern, "behavior": how, "invert": invert},
    _PATTERN,
    st.sampled_from(["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]),
    st.booleans(),
)
_STRIP = st.builds(
    lambda text, start, stop: {"type": "Strip", "content": text, "start": start, "stop": stop},
    st.sampled_from(["a", " ", "é"]),
    st.integers(0, 1 << 40),
    st.integers(0, 1 << 40),
)


@given(
    st.lists(_REPLACE, max_size=12),
    st.lists(_SPLIT, max_size=3),
    st.lists(st.one_of(_REPLACE, _STRIP), max_size=12),
    st.integers(0, 1 << 62),
)
def shaped(normalizers: list[Any], splits: list[Any], decoders: list[Any], last: int) -> None:
    """Any rules, and an added token of any number."""
    tokenizer = json.loads(_bench().good)
    tokenizer["normalizer"] = {"type": "Sequence", "normalizers": normalizers}
    tokenizer["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [*splits, tokenizer["pre_tokenizer"]]}
    tokenizer["decoder"] = {"type": "Sequence", "decoders": [tokenizer["decoder"], {"type": "Fuse"}, *decoders]}
    tokenizer["added_tokens"] = [
        *tokenizer["added_tokens"],
        {**tokenizer["added_tokens"][0], "id": last, "content": "x"},
    ]
    attack(json.dumps(tokenizer).encode())


def _end() -> None:
    _bench().end()
    _bench.cache_clear()


def target() -> Target:
    """The rules of a good model."""
    return Target("tokenizer", attack, [_bench().good], shaped, _end)
