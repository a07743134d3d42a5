"""How people ask: question templates for every form of fact, those kept for the evaluation, and small disturbances."""

from __future__ import annotations

from random import Random
from typing import Final
from zlib import crc32

from core.demo.training.facts import Fact, Form

FIRST_QUESTION: Final = "How does macluster split a model?"

_TRAIN: Final[dict[Form, tuple[str, ...]]] = {
    "what": (
        "what is {s}?", "what's {s}?", "whats {s}", "what is {s} in macluster?", "explain {s}", "explain {s} to me",
        "tell me about {s}", "can you explain {s}?", "what do you mean by {s}?", "what does {s} mean?", "define {s}",
        "{s}?", "{s}", "meaning of {s}", "describe {s}", "i don't understand {s}", "what exactly is {s}?",
        "give me a short definition of {s}", "so what is {s}?", "help me understand {s}", "say what {s} is",
        "what should i know about {s}?", "{s}, what is that?", "in one sentence, what is {s}?", "remind me what {s} is",
        "could you explain {s}?", "what are {s}?", "what does {s} mean here?", "do you know what {s} is?",
        "how do you define {s}?", "what about {s}?", "i have never heard of {s}", "what is {s} about?",
        "tell me what {s} means", "and what is {s}?", "what is {s} exactly", "i want to know what {s} is",
    ),
    "key": (
        "which key {t}?", "what key {t}?", "which key do i press to {s}?", "how do i {s}?", "how can i {s}?",
        "what key is it to {s}?", "key to {s}?", "shortcut to {s}?", "what do i press to {s}?", "i want to {s}",
        "keyboard shortcut to {s}", "how to {s}", "{s}, which key?", "which button do i use to {s}?",
        "what is the key to {s}?", "tell me the key to {s}", "is there a key to {s}?", "i'd like to {s}, which key?",
        "what's the hotkey to {s}?", "with which key can i {s}?", "can i {s} with a key?", "{s}", "how do you {s}?",
        "what is the shortcut to {s}?", "which key should i use to {s}?", "i need to {s}", "how would i {s}?",
        "where do i {s}?", "is there a shortcut to {s}?", "please tell me how to {s}", "what must i press to {s}?",
    ),
    "command": (
        "which command {t}?", "what is the command to {s}?", "how do i {s} from the shell?",
        "how do i {s} on the command line?", "command to {s}?", "what do i type to {s}?", "terminal command to {s}",
        "is there a command to {s}?", "with which command can i {s}?", "which command do i use to {s}?",
        "how can i {s} by command?", "i want to {s}, which command?", "what command {t}?", "tell me the command to {s}",
        "how do i {s} in the terminal?", "what's the command to {s}?", "{s}, which command?",
        "how to {s} on the command line", "which command should i type to {s}?", "what should i run to {s}?",
        "can i {s} from the shell?",
    ),
    "why": (
        "why {s}?", "why {s}", "but why {s}?", "tell me why {s}", "can you explain why {s}?", "i wonder why {s}",
        "do you know why {s}?", "so why {s}?", "explain why {s}", "why exactly {s}?", "and why {s}?",
        "what is the reason, why {s}?", "please explain why {s}", "in short, why {s}?", "why, {s}?",
        "i don't understand why {s}", "for what reason {s}?", "how come, why {s}?",
    ),
    "how": (
        "how {s}?", "how {s}", "how exactly {s}?", "explain how {s}", "tell me how {s}", "can you explain how {s}?",
        "in short, how {s}?", "how {s} in simple words?", "i'd like to know how {s}", "so how {s}?", "and how {s}?",
        "please explain how {s}", "do you know how {s}?", "i wonder how {s}", "in what way {s}?",
        "can you tell me how {s}?", "how {s} here?", "explain to me how {s}", "what about how {s}?",
    ),
    "happens": (
        "what happens if {s}?", "what happens when {s}?", "what if {s}?", "and if {s}?", "what will happen if {s}?",
        "suppose {s}, what then?", "what does macluster do if {s}?", "what would happen if {s}?", "{s}, what now?",
        "what happens once {s}?", "{s}", "what do i do if {s}?", "what should i do when {s}?", "help, {s}",
        "and when {s}?", "what about the case that {s}?", "tell me what happens if {s}", "what then, if {s}?",
        "say {s}, what happens then?", "if {s}, what happens?", "when {s}, what happens?",
    ),
    "ask": (),
}  # fmt: skip

# never used in training, for any fact
_HELD: Final[dict[Form, tuple[str, ...]]] = {
    "what": ("could you tell me what {s} is?", "i keep reading about {s}. what is it?", "what is meant by {s}?",
             "how would you describe {s}?"),
    "key": ("which keystroke lets me {s}?", "what should i press if i want to {s}?", "how does one {s}?"),
    "command": ("what do i have to type in order to {s}?", "which macluster command lets me {s}?",
                "how would you {s} from a shell?"),
    "why": ("could you say why {s}?", "any idea why {s}?"),
    "how": ("could you walk me through how {s}?", "in a few words, how {s}?"),
    "happens": ("what is going to happen when {s}?", "imagine {s}. what happens?"),
    "ask": ("just wondering, {q}", "sorry to ask, but {q}", "{q} i would really like to know"),
}  # fmt: skip

_BEFORE: Final = (
    "hey, ", "hi, ", "hello, ", "please, ", "quick question: ", "ok, ", "so, ", "well, ", "one question: ", "tell me, ",
    "and ", "now, ", "hi there, ", "i have a question: ", "please tell me: ", "hm, ", "sorry, ", "next question: ",
    "thanks. ", "cool. ", "good, ", "a question: ",
)  # fmt: skip
_AFTER: Final = (
    " please", " thanks", ", please", " in macluster", " in short", " exactly", " again", " for me", " then",
    " in one sentence", " briefly", " please?", " thx", " here",
)  # fmt: skip
_AFTERTHOUGHTS: Final = (
    "just curious", "i am new here", "i forgot", "asking for a friend", "my friend asked me", "it matters to me",
    "that would help me", "i could not find it", "i am curious", "i need it now", "explain it to me", "tell me",
    "i have no idea", "i am not sure", "it is not clear to me", "i read about it", "this is important", "help me out",
    "give me the short answer", "i want to understand it", "someone said i should ask you", "i saw it on the screen",
    "i am confused", "take your time", "no hurry", "be honest", "i do not remember", "it would be good to know",
    "let me know", "answer quickly", "i keep wondering", "i wonder", "can you say", "do you know", "any idea",
    "i have been wondering about that", "you surely know", "i hope you can tell", "in case you know it",
)  # fmt: skip
_SYNONYMS: Final = (
    (" mac ", " machine "), (" macs", " machines"), ("how do i", "how can i"), ("how do i", "how to"),
    ("what is", "what's"), ("what does", "what would"), ("can i", "could i"), ("can i", "may i"),
    ("how many", "what number of"), ("do i need", "must i have"), ("model", "llm"), ("explain", "describe"),
    ("which", "what"), ("is there", "do we have"), ("computer", "mac"), ("does macluster", "does it"),
    ("macluster", "this program"), ("the model", "a model"), ("layers", "model layers"), ("what happens",
    "what happen"),
    ("don't", "do not"), ("i'd", "i would"), ("what's", "what is"), ("question", "prompt"), ("key", "shortcut"),
    ("answer", "reply"), ("answer", "output"), ("screen", "window"), ("pane", "panel"), ("start", "launch"),
    ("several", "many"), ("several", "multiple"), ("many", "lots of"), ("large", "big"), ("big", "large"),
    ("small", "little"), ("fast", "quick"), (" get ", " have "), (" see ", " look at "), ("shown", "displayed"),
    ("stored", "kept"), ("kept", "stored"), ("need", "require"), ("safe", "secure"), ("encrypted", "sealed"),
    ("dies", "fails"), ("dies", "is lost"), ("died", "failed"), ("died", "was lost"), ("crashes", "breaks down"),
    ("conversation", "chat"), ("chat", "conversation"), ("save", "store"), ("memory", "ram"), ("called", "named"),
    ("chosen", "picked"), ("choose", "pick"), ("choose", "select"), ("divided", "split up"), (" have ", " own "),
    ("happens", "goes on"), ("is there", "does it have"), ("what is", "what would be"), ("can i", "am i able to"),
    ("how do i", "what do i do to"), ("option", "flag"), ("command", "instruction"),
    ("network", "lan"), ("other macs", "other computers"), ("a mac", "one of my macs"), ("a mac", "a computer"),
    ("the mac", "the machine"), ("text", "words"), ("list", "show"), ("find out", "learn"), ("again", "once more"),
)  # fmt: skip
_VOWELS: Final = "aeiou"


def training_questions(found: Fact) -> list[str]:
    """Every plain question of a fact that training may use."""
    kept = _kept_back(found)
    asks = [ask for ask in found.asks if ask != kept]
    filled = [_filled(t, slot) for slot in found.slots for t in _TRAIN[found.form]]
    return [*filled, *asks, *asks, *asks]


def held_out_questions(found: Fact) -> list[str]:
    """Questions of a fact that training must never see."""
    kept = _kept_back(found)
    if found.form == "ask":
        plain = next(ask for ask in found.asks if ask != kept)
        templated = [t.format(q=plain) for t in _HELD["ask"]]
    else:
        templated = [_filled(t, found.slots[i % len(found.slots)]) for i, t in enumerate(_HELD[found.form])]
    return [*([kept] if kept else []), *templated]


def disturbed(question: str, rng: Random) -> str:
    """The question as somebody in a hurry would type it: a word more, a synonym, a typo, no capitals, no mark."""
    for _ in range(2):
        found = [pair for pair in _SYNONYMS if pair[0] in question]
        if found and rng.random() < 0.25:
            question = question.replace(*rng.choice(found), 1)
    loose = rng.random()
    if loose < 0.1:
        question = _content_words(question)
    elif loose < 0.2:
        question = _one_less(question, rng)
    if rng.random() < 0.22:
        question = rng.choice(_BEFORE) + question
    if rng.random() < 0.12:
        body, mark = (question[:-1], "?") if question.endswith("?") else (question, "")
        question = body + rng.choice(_AFTER).removesuffix(mark) + mark
    if rng.random() < 0.16:
        question = f"{question}{rng.choice((' ', ' ', ', ', '. '))}{rng.choice(_AFTERTHOUGHTS)}"
    if rng.random() < 0.12:
        question = _typo(question, rng)
    style = rng.random()
    if style < 0.5:
        question = question[:1].upper() + question[1:]
    elif style < 0.53:
        question = question.upper()
    elif style < 0.75:
        question = question.lower()
    if rng.random() < 0.25:
        question = question.rstrip("?.")
    elif rng.random() < 0.1 and not question.endswith("?"):
        question += "?"
    return question


def normal(question: str) -> str:
    """A question without case, marks and extra blanks: what counts as the same phrasing."""
    kept = "".join(c if c.isalnum() or c in "+/-[]" else " " for c in question.lower())
    return " ".join(kept.split())


def _kept_back(found: Fact) -> str:
    """One hand-written question of the fact, by chance but always the same; none where there are few."""
    choice = [ask for ask in found.asks if normal(ask) != normal(FIRST_QUESTION)]
    if len(choice) < (5 if found.form == "ask" else 3):
        return ""
    return choice[crc32(found.name.encode()) % len(choice)]


def _filled(template: str, slot: str) -> str:
    return template.format(s=slot, t=_third(slot)) if "{t}" in template else template.format(s=slot)


def _third(action: str) -> str:
    """ "open the picker" becomes "opens the picker"."""
    verb, _, rest = action.partition(" ")
    irregular = {"do": "does", "go": "goes", "have": "has"}
    if verb in irregular:
        verb = irregular[verb]
    elif verb.endswith(("s", "sh", "ch", "x")):
        verb += "es"
    elif verb.endswith("y") and verb[-2:-1] not in _VOWELS:
        verb = verb[:-1] + "ies"
    else:
        verb += "s"
    return f"{verb} {rest}".strip()


_SMALL: Final = frozenset(
    [
        "a",
        "an",
        "the",
        "is",
        "are",
        "was",
        "do",
        "does",
        "did",
        "i",
        "you",
        "me",
        "my",
        "to",
        "of",
        "in",
        "on",
        "for",
        "it",
        "this",
        "that",
        "what",
        "which",
        "how",
        "why",
        "can",
        "could",
        "should",
        "would",
        "will",
        "with",
        "be",
        "and",
        "or",
        "so",
        "there",
        "tell",
        "explain",
        "please",
    ]
)


def _content_words(question: str) -> str:
    """Only the words that carry the meaning, as in a search box; a question of few such words stays as it is."""
    words = [w for w in question.rstrip("?.").split(" ") if w.lower().strip(",") not in _SMALL]
    return " ".join(words) if len(words) > 2 else question


def _one_less(question: str, rng: Random) -> str:
    words = question.split(" ")
    spare = [i for i, w in enumerate(words) if w.lower() in _SMALL]
    if len(words) > 4 and spare:
        del words[rng.choice(spare)]
    return " ".join(words)


def _typo(text: str, rng: Random) -> str:
    words = text.split(" ")
    long = [i for i, w in enumerate(words) if len(w) > 4 and w.isalpha()]
    if not long:
        return text
    spot = rng.choice(long)
    word = words[spot]
    at = rng.randrange(1, len(word) - 1)
    kind = rng.randrange(3)
    if kind == 0:
        word = word[:at] + word[at + 1 :]
    elif kind == 1:
        word = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    else:
        word = word[:at] + word[at] + word[at:]
    words[spot] = word
    return " ".join(words)
