"""A tokenizer process, which answers the requests of a node in order.

Tokenizers and chat templates are programs from model files: they may take hours or end the process (seeds of such
files: tests/attacks/test_tokenizers.py). A model's prompts are therefore made in another process than its answers'
text, which never waits for them.
"""

from __future__ import annotations

import gc
import os
from functools import partial
from pathlib import Path

from core.errors import BadModel, MaclusterError
from core.models.files.ready_child import ReadyChild
from core.models.files.sandbox import TRY_AGAIN, allow, end_with_parent
from core.models.text import text_messages
from core.models.text.answer_reader import AnswerReader
from core.models.text.harmony import Stream
from core.models.text.tokenizer import Tokens
from core.pipe_messages import read_messages, write_message


class Tokenizing:
    """Answers requests about one tokenizer, each within its limit of processor time."""

    def __init__(self) -> None:
        self._tokens: Tokens | None = None
        self._streams: dict[str, Stream] = {}
        self._readers: dict[str, AnswerReader] = {}

    def answer(self, request: text_messages.TextRequest) -> text_messages.TextAnswer:
        """Response to a request; an error of the tokenizer becomes `Refused`."""
        allow(request.cpu_s)
        try:
            return self._answer(request)
        except MaclusterError as error:
            problem = error.problem
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # such as the library's PanicException
            reason = (str(error) or type(error).__name__).splitlines()[0][:200]
            problem = BadModel(f"The tokenizer fails: {reason}", TRY_AGAIN).problem
        gc.collect()  # frees the objects of a stopped template
        return text_messages.Refused(problem=problem)

    def _answer(self, request: text_messages.TextRequest) -> text_messages.TextAnswer:
        if isinstance(request, text_messages.ReadTokenizer):
            self._tokens = read = Tokens.load(Path(request.directory), ReadyChild().run)
            return text_messages.TokenizerRead(
                eos=read.eos, vocab_size=read.vocab_size, longest=read.longest, sampling=read.sampling
            )
        assert self._tokens, "reading it is the first request"
        match request:
            case text_messages.Encode(messages=messages, raw=raw, tools=tools, template_options=options):
                return text_messages.Encoded(tokens=self._tokens.encode(messages, raw, tools, options))
            case text_messages.Constrain(constraint=constraint, calls=calls, prompt_end=prompt_end, raw=raw):
                return text_messages.Constrained(
                    constraint=self._tokens.constrain(constraint, calls, prompt_end, raw=raw)
                )
            case text_messages.Decode(stream=name, tokens=tokens, is_chat=is_chat, named=named):
                stream = self._streams.get(name) or self._streams.setdefault(name, self._tokens.stream(is_chat=is_chat))
                text = "".join(stream.add(token) for token in tokens)
                return text_messages.Decoded(text=text, held=stream.held, names=tuple(map(self._tokens.name, named)))
            case text_messages.EndStream(stream=name):
                self._streams.pop(name, None)
                return text_messages.Decoded()
            case text_messages.BeginReading(stream=name, prompt_end=prompt_end, tools=tools):
                self._readers[name] = self._tokens.reader(prompt_end, tools)
                return text_messages.Parts()
            case text_messages.ReadText(stream=name, text=text):
                return text_messages.Parts(parts=tuple(self._readers[name].read(text)))
            case text_messages.EndReading(stream=name, is_whole=is_whole):
                return text_messages.Parts(parts=tuple(self._readers.pop(name).end(is_whole)))


def main() -> None:
    """Answer requests until the node closes the pipe."""
    outbox = os.dup(1)
    end_with_parent()
    os.dup2(2, 1)  # keeps libraries from printing into an answer
    tokenizing = Tokenizing()
    for body in read_messages(partial(os.read, 0)):
        write_message(outbox, tokenizing.answer(text_messages.unpack_request(body)))
    os._exit(0)
