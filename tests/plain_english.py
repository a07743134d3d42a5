"""Checks that docstrings, comments, screen texts, help and Markdown are in plain English.

`python -m tests.plain_english [PATH ...]` prints each phrase of the old idiom with its place and exits with 1 if there
is one. To allow a line, end it with the comment `# plain: allowed`, or `<!-- plain: allowed -->` in Markdown; for a
string of several lines put the comment after its last line.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ALLOWED: Final = "plain: allowed"
ROOT: Final = Path(__file__).parents[1]
# folders whose strings are data and are not checked
TESTS: Final = ("tests", "screenshots")

# a phrase of the old idiom, and what to write instead
PHRASES: Final = {
    r"anew": "again",
    r"behind (?!NAT|a (?:router|firewall|proxy))": "after",
    r"beside(?!s)": "next to, besides, with",
    r"of which": "a sentence of its own",
    r"those (?:that|who|which)": "the noun itself",
    r"so many": "a number, or `up to N`",
    r"as far as": "up to, where",
    r"nobody": "no user, no client, nothing",
    r"who(?:so)?ever": "the subject itself",
    r"what (?:becomes|became|comes|came) of": "the result of",
    r"(?:is|are|was|were) told": "gets, receives",
    r"fore(?:tells?|told|telling)": "predicts, predicted",
    r"likel(?:ier|iest)": "more probable, most probable",
    r"under way": "in flight, running",
    r"(?:is|are) (?-i:none)": "no, there is no",
    r"in the place of": "instead of",
    r"not now:": "the reason alone",
    r"by and by": "step by step",
    r"(?:he|his|him)": "they, their",
    r"goes on by itself": "continues",
    r"in no memory": "not cached",
    r"comes to a disk": "is downloaded",
    r"has none of": "the noun itself",
    r"is no longer to be": "can't",
    r"it is (?:said|told)": "the subject itself",
}
# words that begin a relative clause in place of a sentence, or restate the signature
FIRST_WORDS: Final = frozenset({"What", "Who", "Whoever", "Those", "That", "Of", "So", "Nobody", "Which"})

_PHRASE: Final = re.compile("|".join(rf"(?P<p{i}>\b{p}\b)" for i, p in enumerate(PHRASES)), re.IGNORECASE)
_CODE: Final = re.compile(r"`[^`]*`")


class Finding(NamedTuple):
    """A phrase to rewrite; `line` counts from 1."""

    path: Path
    line: int
    phrase: str
    advice: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: “{self.phrase}”: {self.advice}"


def phrases_in(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield (line index, phrase, advice) for each phrase of the old idiom outside `code`."""
    joined = _CODE.sub(lambda code: " " * len(code[0]), text)
    # a phrase may be broken over two lines
    for found in _PHRASE.finditer(re.sub(r"\n *#? *", lambda gap: "\n" + " " * (len(gap[0]) - 1), joined)):
        assert found.lastgroup is not None
        yield joined.count("\n", 0, found.start()), found[0], list(PHRASES.values())[int(found.lastgroup[1:])]


def in_python(path: Path) -> Iterator[Finding]:
    """Findings in the comments, docstrings and strings of a module; in one of the tests, strings are data."""
    source = path.read_text("utf-8")
    lines = source.splitlines()
    nodes = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    docstrings = {node.body[0].lineno for node in nodes if ast.get_docstring(node)}
    has_data = any(ROOT / folder in path.resolve().parents for folder in TESTS)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        is_string = token.type == tokenize.STRING and (token.start[0] in docstrings or not has_data)
        is_text = token.type == tokenize.COMMENT or (is_string and " " in token.string)
        if is_text and ALLOWED not in lines[token.end[0] - 1]:
            for index, phrase, advice in phrases_in(token.string):
                yield Finding(path, token.start[0] + index, phrase, advice)
    for node in nodes:
        words = (ast.get_docstring(node) or "").split(maxsplit=1)
        if words and words[0] in FIRST_WORDS and ALLOWED not in lines[(node.body[0].end_lineno or 1) - 1]:
            yield Finding(path, node.body[0].lineno, words[0], "start with a verb or a noun")


def in_markdown(path: Path) -> Iterator[Finding]:
    """Findings in a Markdown file, outside its code."""
    text = path.read_text("utf-8")
    lines = text.splitlines()
    shown = re.sub(r"^```.*?^```", lambda block: re.sub(r"[^\n]", " ", block[0]), text, flags=re.DOTALL | re.MULTILINE)
    for index, phrase, advice in phrases_in(shown):
        if ALLOWED not in lines[index]:
            yield Finding(path, index + 1, phrase, advice)


def findings(paths: list[Path]) -> Iterator[Finding]:
    """All findings in the Python and Markdown files at or below `paths`."""
    for path in paths:
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in files:
            if file.suffix == ".py" and file != Path(__file__):
                yield from in_python(file)
            elif file.suffix == ".md":
                yield from in_markdown(file)


def main() -> int:
    """Check the paths of the command line, or the product, the tests and the documents."""
    everything = [*(ROOT / name for name in ("core", "tui", "macluster.py", *TESTS)), *ROOT.glob("*.md")]
    found = list(findings([Path(word) for word in sys.argv[1:]] or everything))
    for each in found:
        print(each)
    if found:
        print(f"{len(found)} phrases to rewrite.", file=sys.stderr)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
