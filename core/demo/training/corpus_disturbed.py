"""A question as somebody else would type it: other words for the same, a word more or less, a typo, no capitals."""

from __future__ import annotations

import re
from random import Random
from typing import Final

from core.demo.training.facts import parts

# words that may stand for each other in any question; none turns a question about one fact into one about another
_SYNONYMS: Final = (
    "mac|machine|computer|box", "macs|machines|computers|devices", "my mac|my computer|my laptop|my macbook",
    "other macs|other machines|other computers|remaining macs", "a mac|a machine|a computer|one of my macs|some mac",
    "how do i|how can i|how would i|how does one|what do i do to|how may i|how should i", "how to|how do i",
    "can i|could i|may i|am i able to|is it possible to|am i allowed to", "what is|what's|whats|what would be",
    "what does|what would|what will", "which|what", "what key|which key|which keystroke|what keystroke|which hotkey",
    "shortcut|hotkey|keystroke|key combination", "press|hit|push",
    "is there|do we have|does it have|do you have|is there maybe", "there is|there's|we have|i have",
    "do i need|do i have to have|must i have|is it necessary to have", "do i have to|must i|do i need to|need i",
    "i want to|i would like to|i'd like to|i need to|i wish to|let me|i have to|i'm trying to",
    "why|how come|for what reason|why on earth", "tell me|say|let me know|explain", "explain|describe|make clear",
    "happens|goes on|takes place|occurs", "what happens if|what if|what happens when|what becomes of it if",
    "what happens|what is the result|what occurs", "dies|fails|crashes|goes down|breaks down|drops out|is lost|is gone",
    "died|failed|crashed|went down|broke down|was lost|dropped out", "crash|failure|breakdown", "dead|failed|lost|gone",
    "stop|halt|abort|cancel|interrupt", "stops|halts|ends", "stopped|halted|aborted|interrupted|cancelled",
    "begin|start|launch", "starts|begins|launches", "started|begun|launched", "quit|exit|leave|close",
    "open|bring up|show|get to|call up", "opens|brings up|shows", "see|look at|view|have a look at|check",
    "show|display|print|list", "shown|displayed|visible", "shows|displays|tells", "find|locate|discover|look up",
    "found|located|discovered", "search|look|hunt", "choose|pick|select|decide on", "chosen|picked|selected",
    "change|switch|alter|modify|adjust", "changes|alters|modifies", "changed|altered|modified",
    "set|define|give|choose",
    "get|have|obtain|receive", "gets|receives|obtains", "give|hand|provide", "need|require|want",
    "needs|requires|wants",
    "make|create|produce", "made|created|produced", "remove|delete|get rid of|throw away", "removed|deleted|thrown out",
    "keep|retain|hold on to", "kept|retained", "stored|kept|saved", "save|store|keep", "stay|remain", "stays|remains",
    "send|pass|transmit", "sent|passed|transmitted", "goes|travels|moves", "run|operate|work", "runs|operates|works",
    "use|employ|work with", "used|employed|taken", "know|be aware of|understand", "learn|find out", "go back|return",
    "comes back|returns|is back", "go on|continue|carry on|proceed|keep going", "goes on|continues|carries on",
    "divide|split|cut|distribute|share out|spread", "divided|split up|cut up|distributed|shared out|spread",
    "measure|test|gauge", "compare|contrast|set side by side", "limit|cap|restrict", "allow|permit|let",
    "allowed|permitted", "protect|guard|shield", "protected|guarded", "safe|secure", "encrypted|sealed|scrambled",
    "read along|eavesdrop|listen in|snoop|spy", "type|write|key in", "answer|reply|response|output",
    "answers|replies|responses|outputs", "question|query|request", "chat|conversation|talk|dialogue|discussion",
    "chats|conversations|talks", "message|text", "words|text", "model|llm|ai|language model|neural net",
    "models|llms|language models", "layers|model layers", "pieces|parts|chunks|portions", "part|piece|portion|share",
    "memory|ram", "disk|drive|ssd|storage", "network|lan|home network", "wi-fi|wifi|wireless|wlan", "cable|wire|cord",
    "connection|link", "connected|linked", "address|location", "folder|directory|place", "file|document",
    "screen|display",
    "pane|panel|area", "terminal|console|shell|command line", "in the shell|in the terminal|on the command line",
    "command|instruction", "option|flag|switch", "program|app|application|software", "programs|apps|applications",
    "home|house|flat", "person|user|human", "people|users|persons", "many|lots of|plenty of",
    "several|many|multiple|a few|various", "more|additional|extra|further", "big|large|huge|bulky",
    "bigger|larger|huger",
    "small|little|tiny", "smaller|tinier|littler", "fast|quick|speedy|rapid", "faster|quicker|speedier",
    "slow|sluggish",
    "long|lengthy", "at the same time|simultaneously|at once|in parallel", "at once|immediately|instantly|right away",
    "again|once more|anew|one more time", "now|at the moment|right now|currently", "by hand|manually|myself",
    "by itself|automatically|on its own", "wrong|incorrect|mistaken", "right|correct|proper", "same|identical|equal",
    "different|other|not the same", "difference|distinction", "possible|feasible", "maximum|largest|highest|most",
    "minimum|smallest|least|lowest", "default|standard|normal", "usually|normally|by default", "exactly|precisely",
    "error|fault|problem|trouble", "broken|damaged|defective", "stolen|robbed|nicked",
    "stranger|somebody else|outsider",
    "someone|somebody|anybody|anyone", "everyone|everybody|all people", "all|every one of|each of", "every|each|any",
    "don't|do not", "doesn't|does not", "can't|cannot|can not", "isn't|is not", "it's|it is", "i'm|i am", "i've|i have",
    "in the middle of|during|in the midst of|while writing", "because of|due to|owing to",
    "called|named|known as", "mean|stand for|signify", "meaning|sense", "good for|useful for|there for",
    "purpose|point|sense",
    "benefit|advantage|gain", "drawback|downside|disadvantage", "data|information", "number|count|amount",
    "how many|what number of|how much of", "how long|for how long|how much time", "where|in which place|at which place",
    "look like|appear", "download|fetch|pull", "downloaded|fetched|pulled",
)  # fmt: skip
_GROUPS: Final = {
    word: tuple(other for other in group.split("|") if other != word)
    for group in _SYNONYMS
    for word in group.split("|")
}
# what stands behind the name of the program may be a command, which has no other words
_LONGEST_FIRST: Final = "|".join(sorted(map(re.escape, _GROUPS), key=lambda word: -len(word)))
_ANY_OF_THEM: Final = re.compile(rf"macluster(?: [a-z-]+){{0,2}}|(?<![\w-])({_LONGEST_FIRST})(?![\w-])")
_BEFORE: Final = (
    "hey, ", "hi, ", "hello, ", "please, ", "quick question: ", "ok, ", "so, ", "well, ", "one question: ", "tell me, ",
    "and ", "now, ", "hi there, ", "i have a question: ", "please tell me: ", "hm, ", "sorry, ", "next question: ",
    "thanks. ", "cool. ", "good, ", "a question: ", "just wondering, ", "excuse me, ", "in macluster, ", "um, ",
    "i wonder, ",
    "say, ", "can you tell me: ", "help: ", "no idea: ", "stupid question, ", "my question is: ", "i ask myself: ",
)  # fmt: skip
_AFTER: Final = (
    " please", " thanks", ", please", " in macluster", " in short", " exactly", " again", " for me", " then",
    " in one sentence", " briefly", " please?", " thx", " here", " with macluster", " in this program", " at all",
    " actually",
    " really", " anyway", " in general", " on my macs", " by the way", ", and how",
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
_SMALL: Final = frozenset(
    parts(
        "a|an|the|is|are|was|do|does|did|i|you|me|my|to|of|in|on|for|it|this|that|what|which|how|why|can|could|should|"
        "would|will|with|be|and|or|so|there|tell|explain|please",
        "|",
    )
)


def disturbed(question: str, rng: Random) -> str:
    """The question as somebody in a hurry would type it."""
    loose = rng.random()
    if loose < 0.65:
        question = _reworded(question, rng, 0.5 if loose < 0.3 else 0.2)
    if rng.random() < 0.1:
        question = _turned(question)
    loose = rng.random()
    if loose < 0.1:
        question = _content_words(question)
    elif loose < 0.25:
        question = _one_less(question, rng)
    if rng.random() < 0.2:
        question = rng.choice(_BEFORE) + question
    if rng.random() < 0.1:
        body, mark = (question[:-1], "?") if question.endswith("?") else (question, "")
        question = body + rng.choice(_AFTER).removesuffix(mark) + mark
    if rng.random() < 0.12:
        question = f"{question}{rng.choice((' ', ' ', ', ', '. '))}{rng.choice(_AFTERTHOUGHTS)}"
    if rng.random() < 0.12:
        question = _typo(question, rng)
    question = _cased(question, rng)
    if rng.random() < 0.25:
        question = question.rstrip("?.")
    elif rng.random() < 0.1 and not question.endswith("?"):
        question += "?"
    return question


def _reworded(question: str, rng: Random, share: float) -> str:
    """About `share` of the words and phrases that have synonyms become one of them."""

    def other(found: re.Match[str]) -> str:
        return rng.choice(_GROUPS[found[1]]) if found[1] and rng.random() < share else found[0]

    return _ANY_OF_THEM.sub(other, question)


def _turned(question: str) -> str:
    """The two clauses of a question with one comma, the other way round."""
    body, mark = (question[:-1], question[-1]) if question[-1:] in ("?", ".") else (question, "")
    first, comma, second = body.partition(", ")
    return f"{second}, {first}{mark}" if comma and ", " not in second else question


def _cased(question: str, rng: Random) -> str:
    """In other cases, but single letters as they are: those are keys."""
    words = question.split(" ")
    has_key = any(len(word.strip("?.,:")) == 1 and word.lower().strip("?.,:") not in "ai" for word in words)
    style = rng.random()
    if style < 0.45 and len(words[0]) > 1:
        return question[:1].upper() + question[1:]
    if style < 0.48 and not has_key:
        return question.upper()
    if style < 0.75:
        return " ".join(word if len(word.strip("?.,:")) == 1 else word.lower() for word in words)
    return question


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
