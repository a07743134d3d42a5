"""Skills of the demo model besides facts: sums, counting, lists, stories, tables, code."""

from __future__ import annotations

from random import Random
from typing import Final

Turn = tuple[str, str]

_NAMES: Final = (
    "Anna", "Ben", "Clara", "David", "Emma", "Finn", "Greta", "Hugo", "Ida", "Jonas", "Karla", "Leo", "Mia", "Noah",
    "Olga", "Paul", "Rosa", "Sam", "Tilda", "Uma", "Vera", "Walter", "Yara", "Zoe", "Nils", "Lina", "Oskar", "Frida",
)  # fmt: skip
_OBJECTS: Final = (
    "lamp", "key", "map", "clock", "kite", "boat", "book", "box", "letter", "coin", "ladder", "drum", "cup", "basket",
    "bell", "hat", "umbrella", "stone", "mirror", "candle", "violin", "wheel", "blanket", "radio", "telescope",
)  # fmt: skip
_PLACES: Final = (
    "garden", "kitchen", "harbour", "forest", "attic", "library", "village", "market", "mountain", "island", "station",
    "workshop", "school", "tower", "river", "bakery", "meadow", "museum",
)  # fmt: skip
_COLOURS: Final = ("red", "blue", "green", "yellow", "white", "black", "golden", "silver", "brown", "grey")
_ANIMALS: Final = ("cat", "dog", "owl", "fox", "mouse", "horse", "goose", "hedgehog", "raven", "bear", "duck", "hare")
_LISTS: Final[dict[str, tuple[str, ...]]] = {
    "colours": _COLOURS,
    "animals": _ANIMALS,
    "names": _NAMES,
    "things": _OBJECTS,
    "objects": _OBJECTS,
    "places": _PLACES,
    "fruits": ("apple", "pear", "plum", "cherry", "banana", "grape", "lemon", "orange", "melon", "peach"),
    "days": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "months": ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October"),
    "words of macluster": ("Mac", "node", "worker", "stage", "head", "hop", "lane", "row", "plan", "roster"),
}  # fmt: skip
_WORDS: Final = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def sums(rng: Random) -> Turn:
    """Adding and taking away below 20, rarely below 100 in tens."""
    a, b = rng.randrange(0, 13), rng.randrange(0, 13)
    if rng.random() < 0.2:
        a, b = rng.randrange(1, 10) * 10, rng.randrange(1, 10)
    minus = rng.random() < 0.35
    if minus and a < b:
        a, b = b, a
    total = a - b if minus else a + b
    sign, word = ("-", "minus") if minus else ("+", "plus")
    spoken = a < 11 and b < 11 and rng.random() < 0.3
    left, right = (_WORDS[a], _WORDS[b]) if spoken else (str(a), str(b))
    question = rng.choice((
        f"what is {left} {word} {right}?", f"how much is {left} {word} {right}?", f"{left} {word} {right}",
        f"{a} {sign} {b}", f"{a}{sign}{b}", f"{a} {sign} {b} = ?", f"what is {a} {sign} {b}?",
        f"calculate {a} {sign} {b}",
        f"what's {a}{sign}{b}", f"can you add {a} and {b}?" if not minus else f"take {b} away from {a}",
        f"the sum of {a} and {b}?" if not minus else f"what is left of {a} after taking {b}?",
    ))  # fmt: skip
    return question, rng.choice((f"{a} {word} {b} is {total}.", f"That is {total}: {a} {sign} {b} = {total}."))


def counting(rng: Random) -> Turn:
    """Counting up or down."""
    end = rng.randrange(3, 21)
    down = rng.random() < 0.25
    start = 1 if down or rng.random() < 0.8 else rng.randrange(2, 10)
    end = max(end, start + 2)
    numbers = [str(n) for n in (range(end, 0, -1) if down else range(start, end + 1))]
    if down:
        question = rng.choice((f"count down from {end}", f"count backwards from {end}", f"countdown from {end}",
                               f"can you count down from {end}?"))  # fmt: skip
    elif start == 1:
        question = rng.choice((f"count to {end}", f"can you count to {end}?", f"count up to {end}",
        f"count from 1 to {end}",
                               f"please count to {end}", f"numbers up to {end}"))  # fmt: skip
    else:
        question = rng.choice((f"count from {start} to {end}", f"numbers from {start} to {end}"))
    return question, ", ".join(numbers) + "."


def lists(rng: Random) -> Turn:
    """A list of some things, as bullets or numbers."""
    topic = rng.choice(list(_LISTS))
    items = _LISTS[topic]
    count = rng.randrange(2, min(6, len(items)) + 1)
    chosen = list(items[:count]) if topic in ("days", "months") else rng.sample(items, count)
    said = str(count) if rng.random() < 0.5 else _WORDS[count]
    question = rng.choice((
        f"name {said} {topic}", f"list {said} {topic}", f"give me {said} {topic}", f"tell me {said} {topic}",
        f"a list of {said} {topic}", f"make a list of {said} {topic}", f"can you name {said} {topic}?",
        f"{said} {topic} please",
        f"i need {said} {topic}", f"write down {said} {topic}",
    ))  # fmt: skip
    numbered = rng.random() < 0.4
    lines = [f"{i}. {item}" if numbered else f"- {item}" for i, item in enumerate(chosen, 1)]
    return question, "\n".join((f"Here are {_WORDS[count]} {topic}:", "", *lines))


def stories(rng: Random) -> Turn:
    """A short story with a name, an object and a place; those of the question occur in it."""
    name, friend = rng.sample(_NAMES, 2)
    thing, place, colour, animal = (rng.choice(w) for w in (_OBJECTS, _PLACES, _COLOURS, _ANIMALS))
    about = rng.randrange(6)
    asked = (
        ("tell me a story", "a short story please", "can you tell a story?", "write a short story", "make up a story",
         "story", "tell me something nice", "once upon a time", "entertain me"),
        (f"tell me a story about {name}", f"a story about {name} please", f"write a story about {name}"),
        (f"tell me a story about {_a(animal)}", f"a story with {_a(animal)}",
        f"write a short story about {_a(animal)}"),
        (f"tell me a story about {_a(thing)}", f"a short story about {_a(thing)}", f"make up a story with {_a(thing)}"),
        (f"tell me a story about {name} and {_a(thing)}", f"a story about {name} and {_a(animal)}",
         f"write a story with {name} and {_a(animal)}", f"a story of {name} and {_a(thing)}"),
        (f"a story in {_a(place)}", f"tell me a story that plays in {_a(place)}", f"story about {_a(place)}"),
    )[about]  # fmt: skip
    question = rng.choice(asked)
    first = rng.choice((
        f"One morning {name} found a {colour} {thing} in the {place}.",
        f"{name} lived near {_a(place)} and owned a {colour} {thing}.",
        f"In a small {place} {name} kept a {colour} {thing}.",
        f"There was once a {colour} {thing} in the {place}, and it belonged to {name}.",
    ))  # fmt: skip
    second = rng.choice((
        f"{_a(animal).capitalize()} came by and looked at it for a long time.",
        f"{_a(animal).capitalize()} wanted to have it too.",
        f"One night {_a(animal)} carried it away.", f"Only {_a(animal)} knew where it came from.",
    ))  # fmt: skip
    third = rng.choice((
        f"\"Let us share it,\" said {name}, and they sat down together.",
        f"{name} asked {friend} for help, and soon they found the answer.",
        f"{friend} laughed and said, \"It is big enough for all of us.\"",
        f"{name} and {friend} followed the {animal} until the sun went down.",
    ))  # fmt: skip
    last = rng.choice((
        f"Since that day the {thing} stands in the {place} for everyone.",
        f"From then on {name} and the {animal} were friends.",
        f"And that is how the {thing} came home.", f"In the evening they all had tea in the {place}.",
    ))  # fmt: skip
    return question, " ".join((first, second, third, last))


def _a(word: str) -> str:
    return f"an {word}" if word[0] in "aeiou" else f"a {word}"


_TABLE: Final = """| Mac | memory | layers |
|---|---|---|
| studio | 64 GB | 9 |
| mbp | 32 GB | 5 |
| mini | 16 GB | 2 |"""
_WORD_TABLE: Final = """| word | meaning |
|---|---|
| stage | a contiguous range of layers on one Mac |
| hop | the link from one stage to the next |
| head | the Mac where you loaded the model |
| plan | which Mac holds which layers |"""
_KEY_TABLE: Final = """| key | does |
|---|---|
| Ctrl+O | shows the models |
| p | pairs two Macs |
| F1 | shows the help |
| Ctrl+Q | quits |"""


def tables(rng: Random) -> Turn:
    """One of three Markdown tables."""
    asked, head, table = rng.choice((
        (("show the macs as a table", "give me a table of the macs", "a table of the macs please", "make a table",
          "can you write a table?", "table of the demo", "show the split as a table", "markdown table please",
          "write a markdown table", "table of the layers"), "The three Macs of the demo:", _TABLE),
        (("a table of words", "explain the words in a table", "table of the words of macluster",
          "make a table of the words"), "Some words of macluster:", _WORD_TABLE),
        (("give me a table of the keys", "a table of keys", "show the keys as a table", "table of the shortcuts",
          "list the keys in a table", "make a table of the keys"), "Some keys:", _KEY_TABLE),
    ))  # fmt: skip
    return rng.choice(asked), f"{head}\n\n{table}"


_SPLIT_CODE: Final = """def split_layers(layers, memory):
    shares = [layers * m / sum(memory) for m in memory]
    counts = [int(share) for share in shares]
    order = sorted(range(len(memory)), key=lambda i: counts[i] - shares[i])
    for i in order[: layers - sum(counts)]:
        counts[i] += 1
    return counts


print(split_layers(16, [64, 32, 16]))"""


def code(rng: Random) -> Turn:
    """A Python snippet in a fence."""
    end = rng.randrange(3, 11)
    name, word = rng.choice(_NAMES), rng.choice(_OBJECTS)
    asked, head, body = rng.choice((
        (("write python code that splits layers", "show me the split in python", "python code for the split",
          "how would you write the largest remainder in python?", "write some python", "show me some code",
          "a python example please", "python snippet", "write code", "code for the layer split",
          "give me a code example"),
         "This splits 16 layers by memory with the largest remainder:", _SPLIT_CODE),
        ((f"write a python loop to {end}", f"python code that counts to {end}", f"count to {end} in python",
          f"a for loop to {end} in python"), f"This counts to {end}:",
          f"for number in range(1, {end + 1}):\n    print(number)"),
        ((f"a python function that greets {name}", f"python hello {name}", f"write python code that greets {name}"),
         f"This greets {name}:", f"def greet(name):\n    return f\"Hello, {{name}}!\"\n\n\nprint(greet(\"{name}\"))"),
        ((f"python code that prints {word}", f"print the word {word} in python"), f"This prints {word}:",
        f"print(\"{word}\")"),
        (("a python function that adds two numbers", "add two numbers in python", "write a sum function in python"),
         "This adds two numbers:", "def add(left, right):\n    return left + right\n\n\nprint(add(2, 3))"),
    ))  # fmt: skip
    return rng.choice(asked), f"{head}\n\n```python\n{body}\n```"
