"""How people ask: question templates for every form of fact."""

from __future__ import annotations

from typing import Final

from core.demo.training.facts import Fact, Form, parts

FIRST_QUESTION: Final = "How does macluster split a model?"

_TEMPLATES: Final[dict[Form, tuple[str, ...]]] = {
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
        "how do i {s} with the keyboard?", "what is the shortcut for {g}?", "key for {g}?", "which key is for {g}?",
        "is {g} possible by a key?", "{g}, which key?", "the key for {g}, please", "how do i {s} without a mouse?",
    ),
    "command": (
        "which command {t}?", "what is the command to {s}?", "how do i {s} from the shell?",
        "how do i {s} on the command line?", "command to {s}?", "what do i type to {s}?", "terminal command to {s}",
        "is there a command to {s}?", "with which command can i {s}?", "which command do i use to {s}?",
        "how can i {s} by command?", "i want to {s}, which command?", "what command {t}?", "tell me the command to {s}",
        "how do i {s} in the terminal?", "what's the command to {s}?", "{s}, which command?",
        "how to {s} on the command line", "which command should i type to {s}?", "what should i run to {s}?",
        "can i {s} from the shell?",
        "what is the command for {g}?", "command for {g}?", "is {g} possible by a command?", "{g}, which command?",
        "which command is for {g}?",
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
    "pressed": (
        "what does {s} do?", "what is {s} for?", "what happens when i press {s}?", "{s} does what", "{s} key?",
        "what does the key {s} do?", "what will {s} do", "explain {s}", "the {s} key, what is it for?", "{s}?",
        "i pressed {s}, what happened?", "what is the effect of {s}?", "the footer shows {s}, what is that?",
        "and {s}, what does it do?", "what do i get by pressing {s}?", "is {s} a shortcut, and for what?",
        "what is {s} bound to?", "when do i need {s}?", "i hit {s} by accident", "what would {s} do now?",
        "tell me about the key {s}", "why would i press {s}?", "what action has {s}?", "meaning of {s}?",
        "what's the {s} key?", "pressing {s} does what?", "can you tell me what {s} does?", "what is on {s}?",
        "which action is {s}?", "if i press {s}, what happens?", "what is the purpose of the {s} shortcut?",
    ),
    "typed": (
        "what does {s} do?", "what is {s} for?", "what happens when i run {s}?", "what does the command {s} do?",
        "explain {s}", "explain the command {s}", "when do i use {s}?", "{s} does what", "{s}?",
        "what will {s} do?", "i ran {s}, what did it do?", "what do i get from {s}?", "why would i type {s}?",
        "what is the purpose of {s}?", "tell me about {s}", "what does it print when i type {s}?",
        "what is the effect of {s}?", "can you explain {s} to me?", "in which case is {s} useful?",
        "what is the result of {s}?", "is it safe to run {s}, what does it do?", "meaning of {s}?",
        "i saw {s} in the readme, what is it?", "what's {s}?", "how does {s} help me?", "what can {s} do for me?",
    ),
    "ask": (),
}  # fmt: skip


def templated(found: Fact) -> list[str]:
    """The templates of a fact's form, filled with its slots."""
    return [_filled(template, slot) for slot in found.slots for template in _TEMPLATES[found.form]]


def _filled(template: str, slot: str) -> str:
    if "{t}" in template:
        return template.format(t=_third(slot))
    return template.format(g=_gerund(slot)) if "{g}" in template else template.format(s=slot)


_DOUBLED: Final = frozenset(
    parts("begin|cancel|chat|forget|get|let|plan|plug|put|quit|run|set|skip|split|stop|submit|unplug|wrap", "|")
)


def _gerund(action: str) -> str:
    """ "move layers" becomes "moving layers"."""
    verb, _, rest = action.partition(" ")
    if verb in _DOUBLED:
        verb += verb[-1]
    elif verb.endswith("e") and not verb.endswith("ee"):
        verb = verb[:-1]
    return f"{verb}ing {rest}".strip()


def _third(action: str) -> str:
    """ "open the picker" becomes "opens the picker"."""
    verb, _, rest = action.partition(" ")
    irregular = {"do": "does", "go": "goes", "have": "has"}
    if verb in irregular:
        verb = irregular[verb]
    elif verb.endswith(("s", "sh", "ch", "x")):
        verb += "es"
    elif verb.endswith("y") and verb[-2:-1] not in "aeiou":
        verb = verb[:-1] + "ies"
    else:
        verb += "s"
    return f"{verb} {rest}".strip()
