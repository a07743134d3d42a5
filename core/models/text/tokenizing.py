"""A tokenizer in a process of its own, which answers the requests of a node.

A tokenizer is a program from a model file: its rules may take hours, or end the process (seeds of such files:
tests/attacks/test_tokenizers.py). Prompts are encoded in a thread, so that the text of running answers need not wait.
"""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, Final

from core.errors import BadModel, MaclusterError
from core.models.files.sandbox import allow, end_with_parent
from core.models.text.answer_reader import AnswerReader
from core.models.text.text_messages import (
    BeginReading,
    Constrain,
    Constrained,
    Decode,
    Decoded,
    Encode,
    Encoded,
    EndReading,
    EndStream,
    Parts,
    ReadText,
    ReadTokenizer,
    Refused,
    TextAnswer,
    TextRequest,
    TokenizerRead,
    unpack_request,
)
from core.models.text.tokenizer import TextStream, Tokens
from core.pipe_messages import LENGTH, pack

# of processor time; the longest honest prompt takes about two
CPU_SECONDS: Final = {
    ReadTokenizer: 60,
    Encode: 20,
    Constrain: 20,
    Decode: 5,
    EndStream: 5,
    BeginReading: 10,
    ReadText: 10,
    EndReading: 10,
}


class Tokenizing:
    """Answers requests about one tokenizer."""

    def __init__(self, outbox: BinaryIO) -> None:
        self._outbox, self._turn = outbox, threading.Lock()
        self._prompts = ThreadPoolExecutor(1)
        self._tokens: Tokens | None = None
        self._streams: dict[str, TextStream] = {}
        self._readers: dict[str, AnswerReader] = {}

    def take(self, request: TextRequest) -> None:
        """Answer it, now or a little later."""
        allow(CPU_SECONDS[type(request)])
        if isinstance(request, Encode | Constrain):
            self._prompts.submit(self._say, request)
        else:
            self._say(request)

    def _say(self, request: TextRequest) -> None:
        try:
            answer = self._answer(request)
        except MaclusterError as error:
            answer = Refused(number=request.number, problem=error.problem)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # the library's PanicException is one
            reason = (str(error) or type(error).__name__).splitlines()[0][:200]
            answer = Refused(number=request.number, problem=BadModel(f"The tokenizer fails: {reason}").problem)
        with self._turn:
            self._outbox.write(pack(answer))
            self._outbox.flush()

    def _answer(self, request: TextRequest) -> TextAnswer:
        number = request.number
        if isinstance(request, ReadTokenizer):
            self._tokens = Tokens.load(Path(request.directory))
            self._tokens.stand_ready()
            return TokenizerRead(number=number, eos=self._tokens.eos, vocab_size=self._tokens.vocab_size)
        assert self._tokens, "reading it is the first request"
        match request:
            case Encode(messages=messages, raw=raw, tools=tools, template_options=options):
                return Encoded(number=number, tokens=self._tokens.encode(messages, raw, tools, options))
            case Constrain(constraint=constraint, calls=calls, prompt_end=prompt_end, raw=raw):
                enforced = self._tokens.constrain(constraint, calls, prompt_end, raw=raw)
                return Constrained(number=number, constraint=enforced)
            case Decode(stream=name, tokens=tokens):
                stream = self._streams.get(name) or self._streams.setdefault(name, self._tokens.stream())
                text = "".join(stream.add(token) for token in tokens)
                return Decoded(number=number, text=text, held=stream.held)
            case EndStream(stream=name):
                self._streams.pop(name, None)
                return Decoded(number=number)
            case BeginReading(stream=name, prompt_end=prompt_end, tools=tools, shaped=shaped):
                self._readers[name] = self._tokens.reader(prompt_end, tools, shaped=shaped)
                return Parts(number=number)
            case ReadText(stream=name, text=text):
                return Parts(number=number, parts=tuple(self._readers[name].read(text)))
            case EndReading(stream=name, is_whole=is_whole):
                return Parts(number=number, parts=tuple(self._readers.pop(name).end(is_whole)))


def main() -> None:
    """Until the node closes the pipe."""
    # whatever a library prints must not run into an answer
    outbox = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    end_with_parent()
    tokenizing, inbox = Tokenizing(outbox), sys.stdin.buffer
    while len(head := inbox.read(LENGTH.size)) == LENGTH.size:
        tokenizing.take(unpack_request(inbox.read(*LENGTH.unpack(head))))
    os._exit(0)  # a prompt that is still being encoded is nobody's any more
