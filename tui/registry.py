"""Every action as data: bindings, footer, help and the command palette are all made from these tables."""

from __future__ import annotations

from typing import NamedTuple


class Action(NamedTuple):
    """`run` is the Textual action, `word` its name in the footer, `title` its name in palette and help.

    No `keys`: only the palette has it. `footer`: one of the few keys that the footer shows.
    """

    id: str
    keys: str
    run: str
    word: str
    title: str
    footer: bool = False
    priority: bool = False


APP = (
    Action("mc.palette", "ctrl+p", "command_palette", "Palette", "All commands", footer=True),
    Action("mc.models", "ctrl+o", "open('models')", "Models", "Choose a model", footer=True),
    Action("mc.help", "f1,question_mark", "help", "Help", "Help for the focused pane", footer=True),
    Action("mc.pair", "p", "pair", "Pair", "Pair with another Mac", footer=True),
    Action("mc.trust", "t", "open('trust')", "Trust", "Trust: who is trusted how far, and why", footer=True),
    Action("mc.new", "ctrl+n", "new_chat", "New", "New chat"),
    Action("mc.retry", "ctrl+r", "retry", "Retry", "Ask the last question again"),
    Action("mc.copy", "ctrl+c", "copy_or_stop", "Copy", "Copy the selection, else stop the answer", priority=True),
    Action("mc.quit", "ctrl+q,q", "quit", "Quit", "Quit", footer=True),
    Action("mc.stop", "", "stop_answer", "Stop", "Stop the answer"),
    Action("mc.keep", "", "keep", "Keep", "Keep this conversation under a name"),
    Action("mc.take-up", "", "take_up", "Take up", "Go on with a conversation that was kept"),
    Action("mc.unload-any", "", "unload", "Unload", "Unload the model, or cancel its loading"),
    Action("mc.theme", "", "change_theme", "Theme", "Change the theme"),
)

DASHBOARD = (
    Action("mc.pane-1", "1", "pane(1)", "Peers", "Go to Peers"),
    Action("mc.pane-2", "2", "pane(2)", "Split", "Go to Layer split"),
    Action("mc.pane-3", "3", "pane(3)", "Hops", "Go to Hops"),
    Action("mc.pane-4", "4", "pane(4)", "Logs", "Go to Logs"),
    Action("mc.pane-5", "5", "pane(5)", "Chat", "Go to Chat"),
    Action("mc.panes", "f2", "panes", "Panes", "One pane alone, or the dashboard", footer=True),
    Action("mc.zoom", "z", "zoom", "Zoom", "Zoom the focused pane, or back"),
    Action("mc.next", "tab", "app.focus_next", "Next", "Next pane"),
    Action("mc.previous", "shift+tab", "app.focus_previous", "Previous", "Previous pane"),
    Action("mc.back", "escape", "back", "Back", "Stop the answer, or one step back"),
)

PANE = (
    Action("mc.pane-copy", "y", "copy_text", "Copy", "Copy the text of this pane", footer=True),
    Action("mc.pane-down", "j", "scroll_down", "Down", "Scroll down"),
    Action("mc.pane-up", "k", "scroll_up", "Up", "Scroll up"),
    Action("mc.pane-top", "g", "scroll_home", "Top", "To the top"),
    Action("mc.pane-end", "G", "scroll_end", "End", "To the end"),
)

CHAT = (
    Action("mc.chat-copy", "y", "copy_message", "Copy", "Copy the message", footer=True),
    Action("mc.chat-code", "Y", "copy_code", "Copy code", "Copy the last code block of the message"),
    Action("mc.chat-previous", "left_square_bracket", "message(-1)", "Previous", "Previous message"),
    Action("mc.chat-next", "right_square_bracket", "message(1)", "Next", "Next message"),
    Action("mc.chat-end", "end,G", "latest", "Latest", "To the end, and follow it", footer=True),
    Action("mc.chat-continue", "c", "app.go_on", "Continue", "Continue the interrupted answer", footer=True),
    Action("mc.chat-top", "g", "scroll_home", "Top", "To the top"),
    Action("mc.chat-down", "j", "scroll_down", "Down", "Scroll down"),
    Action("mc.chat-up", "k", "scroll_up", "Up", "Scroll up"),
)

PROMPT = (
    Action("mc.send", "enter", "send", "Send", "Send the message", footer=True),
    Action("mc.new-line", "ctrl+j", "new_line", "New line", "New line"),
    Action("mc.earlier", "up", "earlier", "Earlier", "Earlier message, when the prompt is empty"),
    Action("mc.later", "down", "later", "Later", "Later message"),
)

RECOVERY = (
    Action("mc.recovery-choose", "enter", "select", "Choose", "Choose what the cursor is on", footer=True),
    Action("mc.recovery-1", "1", "choose(1)", "First", "The first choice"),
    Action("mc.recovery-2", "2", "choose(2)", "Second", "The second choice"),
    Action("mc.recovery-3", "3", "choose(3)", "Third", "The third choice"),
    Action("mc.recovery-4", "4", "choose(4)", "Fourth", "The fourth choice"),
    Action("mc.recovery-down", "j", "cursor_down", "Down", "Next choice"),
    Action("mc.recovery-up", "k", "cursor_up", "Up", "Previous choice"),
)

LOGS = (
    Action("mc.log-follow", "f", "follow", "Follow", "Follow new lines, or stay where you are", footer=True),
    Action("mc.log-level", "l", "level", "Level", "Least level to show", footer=True),
    Action("mc.log-copy", "y", "copy_lines", "Copy", "Copy the lines", footer=True),
    Action("mc.log-down", "j", "scroll_down", "Down", "Scroll down"),
    Action("mc.log-up", "k", "scroll_up", "Up", "Scroll up"),
    Action("mc.log-top", "g", "scroll_home", "Top", "To the top"),
    Action("mc.log-end", "G", "scroll_end", "End", "To the end"),
)

MODEL_LIST = (
    Action("mc.load", "enter", "select", "Load", "Load the model over the paired Macs", footer=True),
    Action("mc.model-down", "j", "cursor_down", "Down", "Next model"),
    Action("mc.model-up", "k", "cursor_up", "Up", "Previous model"),
)

MODELS = (
    Action("mc.filter", "slash", "filter", "Filter", "Show only models whose name holds a text", footer=True),
    Action("mc.sort", "s", "sort", "Sort", "Sort by fit, size or name", footer=True),
    Action("mc.topology", "t", "topology", "Ring", "Plan the model in the next topology", footer=True),
    Action("mc.unload", "u", "app.unload", "Unload", "Unload the model, or cancel its loading"),
    Action("mc.models-leave", "f2", "leave", "Leave", "Back to the dashboard; a load goes on"),
    Action("mc.models-next", "tab", "app.focus_next", "Next", "Next part of the screen"),
    Action("mc.models-previous", "shift+tab", "app.focus_previous", "Previous", "Previous part of the screen"),
    Action("mc.models-back", "escape", "back", "Back", "Cancel loading, clear the filter, or go back", footer=True),
)

PAIRING = (
    Action("mc.pairing-again", "r", "again", "Again", "Try again, once it has failed"),
    Action("mc.pairing-done", "enter", "done", "Close", "Close the dialog, once it has ended"),
    Action("mc.pairing-stop", "escape", "stop", "Leave", "Leave; a pairing under way is stopped, and nothing kept"),
    Action("mc.pairing-next", "tab", "app.focus_next", "Next", "Next part of the dialog"),
    Action("mc.pairing-previous", "shift+tab", "app.focus_previous", "Previous", "Previous part of the dialog"),
    Action("mc.pairing-help", "f1", "app.help", "Help", "Help for pairing", footer=True),
    Action("mc.pairing-quit", "ctrl+q", "quit", "Quit", "Quit; the pairing is stopped"),
)

MAC_LIST = (
    Action("mc.mac-down", "j", "cursor_down", "Down", "Next Mac"),
    Action("mc.mac-up", "k", "cursor_up", "Up", "Previous Mac"),
)

TRUST = (
    Action("mc.trust-key", "f", "fingerprint", "Key", "The whole fingerprint of the key, or its ends", footer=True),
    Action("mc.trust-revoke", "x", "revoke", "Revoke", "Put the Mac out for good", footer=True),
    Action("mc.trust-admin", "a", "admin", "Admin", "Make it an admin, or an admin no more", footer=True),
    Action("mc.trust-name", "n", "rename", "Name", "Give the Mac another name", footer=True),
    Action("mc.trust-rotate", "o", "rotate", "Own key", "Give this Mac a new key"),
    Action("mc.trust-words", "w", "words", "Words", "New recovery words; old ones are void", footer=True),
    Action("mc.trust-recover", "r", "recover", "Recover", "Make this Mac admin by recovery words"),
    Action("mc.trust-decide", "d", "decide", "Decide", "Decide which of two rosters is right"),
    Action("mc.trust-next", "tab", "app.focus_next", "Next", "Next part of the screen"),
    Action("mc.trust-previous", "shift+tab", "app.focus_previous", "Previous", "Previous part of the screen"),
    Action("mc.trust-back", "escape", "back", "Back", "Back to the dashboard", footer=True),
)

ASKING = (
    Action("mc.ask-no", "escape", "no", "No", "No: nothing is changed", footer=True),
    Action("mc.ask-next", "tab", "app.focus_next", "Next", "Next part of the dialog"),
    Action("mc.ask-previous", "shift+tab", "app.focus_previous", "Previous", "Previous part of the dialog"),
    Action("mc.ask-quit", "ctrl+q", "app.quit", "Quit", "Quit; nothing is changed"),
)

HELP = (
    Action("mc.help-close", "escape,f1,q", "close", "Close", "Close the help", footer=True),
    # a modal screen hides the app's keys, and this one must work everywhere
    Action("mc.help-quit", "ctrl+q", "app.quit", "Quit", "Quit, also from the help", footer=True),
)

EVERYTHING = (
    *(*APP, *DASHBOARD, *PANE, *CHAT, *PROMPT, *RECOVERY, *LOGS, *MODEL_LIST, *MODELS),
    *(*PAIRING, *MAC_LIST, *TRUST, *ASKING, *HELP),
)

OUR_IDS = frozenset(a.id for a in EVERYTHING)
