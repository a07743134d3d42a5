"""Every action as data: bindings, footer, help and the command palette are all made from these tables."""

from __future__ import annotations

from typing import NamedTuple


class Action(NamedTuple):
    """One action. An F key is never the only key: Apple keyboards need fn for it."""

    id: str
    keys: str  # separated by commas; "" if only the palette has it
    run: str  # the Textual action
    word: str  # its name in the footer
    title: str  # its name in palette and help
    footer: bool = False  # shown in the footer
    priority: bool = False


def _cursor(name: str, thing: str) -> tuple[Action, ...]:
    return (
        Action(f"mc.{name}-down", "j", "cursor_down", "Down", f"Next {thing}"),
        Action(f"mc.{name}-up", "k", "cursor_up", "Up", f"Previous {thing}"),
    )


def _parts(name: str, whole: str = "screen") -> tuple[Action, ...]:
    return (
        Action(f"mc.{name}-next", "tab", "app.focus_next", "Next", f"Next part of the {whole}"),
        Action(f"mc.{name}-previous", "shift+tab", "app.focus_previous", "Previous", f"Previous part of the {whole}"),
    )


def _scroll(name: str) -> tuple[Action, ...]:
    return (
        Action(f"mc.{name}-down", "j", "scroll_down", "Down", "Scroll down"),
        Action(f"mc.{name}-up", "k", "scroll_up", "Up", "Scroll up"),
        Action(f"mc.{name}-top", "g", "scroll_home", "Top", "To the top"),
        Action(f"mc.{name}-end", "G", "scroll_end", "End", "To the end"),
    )


_SETTINGS = "Chat settings: temperature, system prompt, format"

APP = (
    Action("mc.palette", "ctrl+p,colon", "command_palette", "Palette", "All commands", footer=True),
    Action("mc.models", "ctrl+o", "open('models')", "Models", "Choose a model", footer=True),
    Action("mc.split", "f4,L", "open('split')", "Split", "Edit the split: which Mac holds which layers", footer=True),
    Action("mc.help", "f1,question_mark", "help", "Help", "Help for the focused pane", footer=True),
    Action("mc.pair", "p", "pair", "Pair", "Pair with another Mac", footer=True),
    Action("mc.trust", "t", "open('trust')", "Trust", "Trust: how far each Mac is trusted, and why", footer=True),
    Action("mc.ring", "T", "open('topology')", "Topology", "Topology: which Macs see the text"),
    Action("mc.batch", "B", "open('batch')", "Rows", "Rows, lanes and queue: what is running now"),
    Action("mc.api", "A", "open('api')", "API", "API for other programs: address, keys, requests"),
    Action("mc.new", "ctrl+n", "new_chat", "New", "New chat"),
    Action("mc.retry", "ctrl+r", "retry", "Retry", "Ask the last question again"),
    Action("mc.conversations", "f3,C", "open('conversations')", "Chats", "Conversations: open, search, delete"),
    Action("mc.last", "f5,ctrl+l", "last_chat", "Last chat", "Continue the last conversation"),
    Action("mc.sampling", "f6,S", "open('sampling')", "Settings", _SETTINGS),
    Action("mc.export", "", "export", "Export", "Export this conversation to a file"),
    Action("mc.keep-nothing", "v", "keep_nothing", "Saving", "Turn saving for this chat off or on"),
    Action("mc.copy", "ctrl+c", "copy_or_stop", "Copy", "Copy the selection, or stop the answer", priority=True),
    # has priority, so that no dialog or palette takes it
    Action("mc.quit", "ctrl+q", "quit", "Quit", "Quit", footer=True, priority=True),
    Action("mc.quit-letter", "q", "quit", "Quit", "Quit"),
    Action("mc.stop", "", "stop_answer", "Stop", "Stop the answer"),
    Action("mc.keep", "", "keep", "Save", "Save this chat as a session, with its cache"),
    Action("mc.unload-any", "", "unload", "Unload", "Unload the model, or cancel loading"),
    Action("mc.logs", "", "open('logs')", "Logs", "Log lines, with filters"),
    Action("mc.add-mac", "", "add_mac", "Add", "Add a Mac by address"),
    Action("mc.rescan", "", "rescan", "Rescan", "Look for Macs again"),
    Action("mc.check", "", "open('check')", "Check", "Check why no Mac is found"),
    Action("mc.hops", "", "open('hop')", "Hops", "Hop details, with a speed test"),
    Action("mc.start-node", "N", "start_node", "Start", "Start macluster's service, if it isn't running"),
    Action("mc.start-port", "P", "start_node(0)", "Port", "Start it on another port, if its port is in use"),
    Action("mc.restart-node", "R", "restart_node", "Restart", "Restart macluster's service"),
    Action("mc.theme", "", "change_theme", "Theme", "Change the theme"),
)

DEMO = (
    Action("mc.cable-pull", "f8,ctrl+t", "pull_cable", "Unplug", "Demo: unplug a Mac", footer=True),
    Action("mc.cable-plug", "f9,ctrl+g", "plug_cable", "Plug in", "Demo: plug the Mac back in"),
)

DASHBOARD = (
    Action("mc.pane-1", "1", "pane(1)", "Peers", "Go to Peers"),
    Action("mc.pane-2", "2", "pane(2)", "Split", "Go to Layer split"),
    Action("mc.pane-3", "3", "pane(3)", "Hops", "Go to Hops"),
    Action("mc.pane-4", "4", "pane(4)", "Logs", "Go to Logs"),
    Action("mc.pane-5", "5", "pane(5)", "Chat", "Go to Chat"),
    Action("mc.panes", "f2,D", "panes", "Panes", "One pane, or the whole dashboard", footer=True),
    Action("mc.zoom", "z", "zoom", "Zoom", "Zoom the focused pane in or out"),
    Action("mc.next", "tab", "app.focus_next", "Next", "Next pane"),
    Action("mc.previous", "shift+tab", "app.focus_previous", "Previous", "Previous pane"),
    Action("mc.back", "escape", "back", "Back", "Stop the answer, or go back"),
)

PANE = (
    Action("mc.pane-copy", "y", "copy_text", "Copy", "Copy the text of this pane", footer=True),
    *_scroll("pane"),
)

CHAT = (
    Action("mc.chat-copy", "y", "copy_message", "Copy", "Copy the message", footer=True),
    Action("mc.chat-code", "Y", "copy_code", "Copy code", "Copy the message's last code block"),
    Action("mc.chat-edit", "e", "edit_message", "Edit", "Edit the selected question and ask again", footer=True),
    Action("mc.chat-branch-before", "less_than_sign,left", "branch(-1)", "Version", "Previous version"),
    Action("mc.chat-branch-next", "greater_than_sign,right", "branch(1)", "Version", "Next version"),
    Action("mc.chat-previous", "left_square_bracket", "message(-1)", "Previous", "Previous message"),
    Action("mc.chat-next", "right_square_bracket", "message(1)", "Next", "Next message"),
    Action("mc.chat-end", "end,G", "latest", "Latest", "To the end, and follow the answer", footer=True),
    Action("mc.chat-continue", "c", "app.go_on", "Continue", "Continue the interrupted answer", footer=True),
    Action("mc.chat-top", "g", "scroll_home", "Top", "To the top"),
    Action("mc.chat-down", "j", "scroll_down", "Down", "Scroll down"),
    Action("mc.chat-up", "k", "scroll_up", "Up", "Scroll up"),
)

PROMPT = (
    Action("mc.send", "enter", "send", "Send", "Send the message", footer=True),
    Action("mc.new-line", "ctrl+j", "new_line", "New line", "New line"),
    Action("mc.earlier", "up", "earlier", "Earlier", "Earlier message, if the prompt is empty"),
    # F6 selects a line in a text area, so the prompt needs a binding of its own
    Action("mc.prompt-sampling", "f6,ctrl+s", "app.open('sampling')", "Settings", _SETTINGS),
    Action("mc.later", "down", "later", "Later", "Later message"),
)

RECOVERY = (
    Action("mc.recovery-1", "1", "choose(1)", "First", "First choice", footer=True),
    Action("mc.recovery-2", "2", "choose(2)", "Second", "Second choice", footer=True),
    Action("mc.recovery-3", "3", "choose(3)", "Third", "Third choice", footer=True),
    Action("mc.recovery-4", "4", "choose(4)", "Fourth", "Fourth choice", footer=True),
    Action("mc.recovery-choose", "enter", "select", "Choose", "Choose the selected line"),
    Action("mc.recovery-logs", "l", "app.open('logs')", "Logs", "Log lines about it", footer=True),
    *_cursor("recovery", "choice"),
)

LOGS = (
    Action("mc.log-follow", "f", "follow", "Follow", "Follow new lines, or stay", footer=True),
    Action("mc.log-level", "l", "level", "Level", "Minimum level", footer=True),
    Action("mc.log-mac", "m", "mac", "Mac", "Show one Mac, the next one, or all"),
    Action("mc.log-wrap", "w", "wrap", "Wrap", "Wrap long lines"),
    Action("mc.log-copy", "y", "copy_lines", "Copy", "Copy the lines", footer=True),
    *_scroll("log"),
)

LOG_PANE = (Action("mc.log-open", "enter,z", "app.open('logs')", "All", "All log lines, with filters", footer=True),)

HOPS = (Action("mc.hop-open", "enter", "app.open('hop')", "Details", "Where a hop's time goes", footer=True),)

HOP = (
    Action("mc.hop-previous", "left", "hop(-1)", "Previous", "Previous hop", footer=True, priority=True),
    Action("mc.hop-next", "right", "hop(1)", "Next", "Next hop", footer=True, priority=True),
    Action("mc.hop-pause", "p", "pause", "Pause", "Pause or resume the chart", footer=True),
    Action("mc.hop-window", "w", "window", "Window", "Time span: 60 s, 10 min, 1 h", footer=True),
    Action("mc.hop-test", "s", "test", "Speed test", "Test the speed of this link", footer=True),
    Action("mc.hop-leave", "f2,D", "leave", "Leave", "Back to the dashboard; stops a running test"),
    Action("mc.hop-down", "j", "scroll_part(1)", "Down", "Scroll down"),
    Action("mc.hop-up", "k", "scroll_part(-1)", "Up", "Scroll up"),
    Action("mc.hop-focus", "tab", "app.focus_next", "Next", "Next part of the screen"),
    Action("mc.hop-focus-back", "shift+tab", "app.focus_previous", "Previous", "Previous part of the screen"),
    Action("mc.hop-back", "escape", "back", "Back", "Stop the speed test, or go back", footer=True),
)

LOGS_SCREEN = (
    Action("mc.logs-filter", "slash", "filter", "Filter", "Show only lines that contain a text", footer=True),
    Action("mc.logs-file", "o", "file", "File", "Copy the log file's path", footer=True),
    Action("mc.logs-leave", "f2,z", "leave", "Leave", "Back to the dashboard"),
    *_parts("logs"),
    Action("mc.logs-back", "escape", "back", "Back", "Clear the filter, or go back", footer=True),
)

MODEL_LIST = (
    Action("mc.load", "enter", "select", "Load", "Load the model on the paired Macs", footer=True),
    *_cursor("model", "model"),
)

MODELS = (
    Action("mc.edit-split", "e", "edit_split", "Split", "Edit the split before loading"),
    Action("mc.download", "d", "download", "Download", "Download a model, or copy it to a Mac", footer=True),
    Action("mc.known", "h", "known", "Hub", "Show models on the hub, or on your disks", footer=True),
    Action("mc.context", "c", "context", "Context", "Choose the context length", footer=True),
    Action("mc.longer", "right", "longer(1)", "Longer", "Longer context"),
    Action("mc.shorter", "left", "longer(-1)", "Shorter", "Shorter context"),
    Action("mc.filter", "slash", "filter", "Filter", "Show only models whose name contains a text", footer=True),
    Action("mc.sort", "s", "sort", "Sort", "Sort by fit, size or name"),
    Action("mc.fitting", "f", "fitting", "Fitting", "Show only models that fit, or all"),
    Action("mc.topology", "T", "topology", "Topology", "Next topology; for a loaded model, all of them"),
    Action("mc.parallelism", "P", "parallelism", "Parallelism", "How the Macs share the model: auto, tp, pp, single"),
    Action("mc.kv-bits", "K", "bits", "Bits", "Cache in 8 bits, 4 bits, or full precision"),
    Action("mc.wire", "w", "wire", "Wire", "Link data as float32, bfloat16, 8-bit, or unchanged"),
    Action("mc.balance", "m", "balance", "Balance", "Divide layers by memory, by speed, or automatically"),
    Action("mc.stop-transfer", "x", "stop_transfer", "Stop", "Stop the download or copy (asks first)"),
    Action("mc.pause-transfer", "space", "pause_transfer", "Pause", "Pause or resume the download or copy"),
    Action("mc.limit-transfer", "b", "limit_transfer", "Limit", "Limit the transfer rate"),
    Action("mc.unload", "u", "app.unload", "Unload", "Unload the model, or cancel loading"),
    Action("mc.models-leave", "f2,D", "leave", "Leave", "Back to the dashboard; loading continues"),
    *_parts("models"),
    Action("mc.models-back", "escape", "back", "Back", "Cancel loading, clear the filter, or go back", footer=True),
)

PAIRING = (
    Action("mc.pairing-again", "r", "again", "Again", "Try again after a failure"),
    Action("mc.pairing-done", "enter", "done", "Close", "Close the dialog when pairing has ended"),
    Action("mc.pairing-key", "f", "fingerprint", "Key", "The other key's full fingerprint", priority=True),
    Action("mc.pairing-stop", "escape", "stop", "Leave", "Stop pairing and leave; nothing is saved"),
    *_parts("pairing", "dialog"),
    Action("mc.pairing-help", "f1,question_mark", "app.help", "Help", "Help for pairing", footer=True, priority=True),
    Action("mc.pairing-quit", "ctrl+q", "app.quit", "Quit", "Quit and stop pairing"),
)

MAC_LIST = _cursor("mac", "Mac")

ROW_LIST = (
    Action("mc.row-timeline", "enter", "app.open('timeline')", "Timeline", "Timeline of the last steps", footer=True),
    *_cursor("row", "row"),
)

TIMELINE = (
    Action("mc.timeline-before", "left", "step(-1)", "Previous", "Previous step", footer=True, priority=True),
    Action("mc.timeline-next", "right", "step(1)", "Next", "Next step", footer=True, priority=True),
    Action("mc.timeline-far-before", "H,shift+left", "step(-10)", "Previous", "Ten steps back", priority=True),
    Action("mc.timeline-far-next", "L,shift+right", "step(10)", "Next", "Ten steps forward", priority=True),
    Action("mc.timeline-again", "r", "again", "Again", "Trace again", footer=True),
    Action(
        "mc.timeline-down", "down,j", "row(1)", "Row", "Select the stage and lane below", footer=True, priority=True
    ),
    Action("mc.timeline-up", "up,k", "row(-1)", "Row", "Select the stage and lane above", priority=True),
    Action("mc.timeline-scroll-down", "pagedown", "scroll_phases(1)", "Down", "Scroll down the phases", priority=True),
    Action("mc.timeline-scroll-up", "pageup", "scroll_phases(-1)", "Up", "Scroll up the phases", priority=True),
    Action("mc.timeline-leave", "f2,D", "back", "Leave", "Back to the rows"),
    Action("mc.timeline-back", "escape", "back", "Back", "Back to the rows", footer=True),
)

BATCH = (
    Action("mc.batch-stop", "x", "stop", "Stop", "Stop the selected request", footer=True),
    Action("mc.batch-leave", "f2,D", "back", "Leave", "Back to the dashboard"),
    *_parts("batch"),
    Action("mc.batch-back", "escape", "back", "Back", "Back to the dashboard", footer=True),
)

KEY_LIST = _cursor("key", "key")

API = (
    Action("mc.api-serve", "o", "serve", "On/off", "Serve other programs, or stop serving", footer=True),
    Action("mc.api-new", "n", "new_key", "New key", "New key for a program (shown once)", footer=True),
    Action("mc.api-end", "x", "end", "Revoke", "Revoke the selected key, or stop the selected request", footer=True),
    Action("mc.api-copy", "y", "copy", "Copy", "Copy the text to paste", footer=True),
    Action("mc.api-program", "right", "program(1)", "Program", "Next program", footer=True, priority=True),
    Action("mc.api-program-before", "left", "program(-1)", "Previous", "Previous program", priority=True),
    Action("mc.api-leave", "f2,D", "back", "Leave", "Back to the dashboard"),
    *_parts("api"),
    Action("mc.api-back", "escape", "back", "Back", "Back to the dashboard", footer=True),
)

TRUST = (
    Action("mc.trust-key", "f", "fingerprint", "Key", "Full or short fingerprint of the key", footer=True),
    Action("mc.trust-revoke", "x", "revoke", "Revoke", "Revoke the selected Mac for good", footer=True),
    Action("mc.trust-admin", "a", "admin", "Admin", "Make or remove admin", footer=True),
    Action("mc.trust-name", "n", "rename", "Name", "Rename the Mac", footer=True),
    Action("mc.trust-rotate", "o", "rotate", "Own key", "Make a new key for this Mac"),
    Action("mc.trust-words", "w", "words", "Words", "New recovery words (replaces the old ones)", footer=True),
    Action("mc.trust-recover", "r", "recover", "Recover", "Become admin with recovery words"),
    Action("mc.trust-decide", "d", "decide", "Decide", "Choose between two rosters"),
    *_parts("trust"),
    Action("mc.trust-back", "escape", "back", "Back", "Back to the dashboard", footer=True),
)

TOPOLOGY_LIST = (
    Action("mc.ring-load", "enter", "select", "Load", "Load the model in this topology (asks first)", footer=True),
    *_cursor("ring", "topology"),
)

TOPOLOGY = (
    Action("mc.ring-leave", "f2,D", "back", "Leave", "Back to the dashboard"),
    *_parts("ring"),
    Action("mc.ring-back", "escape", "back", "Back", "Back; nothing changes", footer=True),
)

SPLIT = (
    Action("mc.split-left", "left", "move(-1)", "Move 1", "Move the boundary left by 1 layer", footer=True),
    Action("mc.split-right", "right", "move(1)", "Right", "Move the boundary right by 1 layer"),
    Action("mc.split-next", "tab", "boundary", "Next", "Next boundary", footer=True),
    Action("mc.split-apply", "enter", "apply", "Apply", "Load the model with this split", footer=True),
    Action("mc.split-back", "escape", "back", "Back", "Leave without applying", footer=True),
    Action("mc.split-balance", "b", "balance", "Balance", "Balance by the Macs' memory", footer=True),
    Action("mc.split-undo", "u", "undo", "Undo", "Undo the last step", footer=True),
    Action("mc.split-down", "j,down", "scroll(1)", "Down", "Scroll the effect down"),
    Action("mc.split-up", "k,up", "scroll(-1)", "Up", "Scroll the effect up"),
    Action("mc.split-leave", "f2,D", "back", "Leave", "Leave without applying"),
    Action(
        "mc.split-far-left", "H,shift+left", "move(-5)", "Move 5", "Move the boundary left by 5 layers", footer=True
    ),
    Action("mc.split-far-right", "L,shift+right", "move(5)", "Right", "Move the boundary right by 5 layers"),
)

ASKING = (
    Action("mc.ask-cancel", "escape", "cancel", "Cancel", "Cancel; nothing changes", footer=True),
    *_parts("ask", "dialog"),
)

HELP = (Action("mc.help-close", "escape,f1", "close", "Close", "Clear the search, or close the help", footer=True),)

PEERS = (
    Action("mc.peer-details", "enter", "ask('details')", "Details", "Details of the selected Mac", footer=True),
    Action("mc.peer-pair", "p", "ask('pair')", "Pair", "Pair with the selected Mac", footer=True),
    Action("mc.peer-trust", "t", "ask('trust')", "Trust", "Trust of the selected Mac", footer=True),
    Action("mc.peer-skip", "space", "ask('skip')", "Leave out", "Include or leave out the selected Mac", footer=True),
    Action("mc.peer-add", "a", "ask('add')", "Add", "Add a Mac by address", footer=True),
    Action("mc.peer-rescan", "r", "app.rescan", "Rescan", "Look for Macs again", footer=True),
    Action("mc.peer-forget", "x", "ask('forget')", "Forget", "Forget the selected Mac (asks first)"),
    Action("mc.peer-down", "j,down", "cursor_down", "Down", "Next Mac"),
    Action("mc.peer-up", "k,up", "cursor_up", "Up", "Previous Mac"),
    Action("mc.peer-first", "g", "cursor_first", "First", "First Mac"),
    Action("mc.peer-last", "G", "cursor_last", "Last", "Last Mac"),
    Action("mc.peer-copy", "y", "copy_text", "Copy", "Copy the text of this pane"),
)

PEER = (
    Action("mc.one-pair", "p", "ask('pair')", "Pair", "Pair with this Mac", footer=True),
    Action("mc.one-trust", "t", "ask('trust')", "Trust", "Trust of this Mac, and its key", footer=True),
    Action(
        "mc.one-skip", "space", "ask('skip')", "Leave out", "Include it in the next load, or leave it out", footer=True
    ),
    Action("mc.one-add", "a", "ask('add')", "Address", "Type its address", footer=True),
    Action("mc.one-forget", "x", "ask('forget')", "Forget", "Revoke it for good (asks first)", footer=True),
    Action("mc.one-copy", "y", "copy_text", "Copy", "Copy the details", footer=True),
    Action("mc.one-leave", "f2,D", "back", "Leave", "Back to the dashboard"),
    Action("mc.one-back", "escape", "back", "Back", "Back to the dashboard", footer=True),
)

WELCOME = (
    Action("mc.welcome-add", "a", "app.add_mac", "Add", "Add a Mac by address", footer=True),
    Action("mc.welcome-rescan", "r", "app.rescan", "Rescan", "Look for Macs again", footer=True),
    Action("mc.welcome-check", "c", "app.open('check')", "Check", "Check why no Mac is found", footer=True),
    Action("mc.welcome-copy", "y", "copy_text", "Copy", "Copy the text of this pane"),
)

CHECK = (
    Action("mc.check-again", "r", "again", "Again", "Check again", footer=True),
    Action("mc.check-copy", "y", "copy_report", "Copy", "Copy the report", footer=True),
    Action("mc.check-leave", "f2,D", "back", "Leave", "Back to the dashboard; stops a running check"),
    Action("mc.check-back", "escape", "back", "Back", "Back; stops a running check", footer=True),
)

CONVERSATION_LIST = (
    Action("mc.conversation-open", "enter", "select", "Open", "Open this conversation in the chat", footer=True),
    *_cursor("conversation", "conversation"),
)

CONVERSATIONS = (
    Action("mc.conversations-filter", "slash", "filter", "Search", "Search all messages", footer=True),
    Action("mc.conversations-new", "n", "new", "New", "New conversation"),
    Action("mc.conversations-rename", "r", "rename", "Rename", "Rename the conversation", footer=True),
    Action("mc.conversations-export", "e", "export", "Export", "Export it to a file", footer=True),
    Action("mc.session-save", "s", "save", "Save", "Save the chat as a session, with its cache"),
    Action("mc.conversations-delete", "x", "delete", "Delete", "Delete it (asks first)", footer=True),
    Action("mc.conversations-leave", "f2,D", "leave", "Leave", "Back to the dashboard"),
    *_parts("conversations"),
    Action("mc.conversations-back", "escape", "back", "Back", "Clear the search, or go back", footer=True),
)

SAMPLING = (
    Action("mc.sampling-use", "enter", "use", "Save", "Save these settings", footer=True),
    Action("mc.sampling-next", "tab,down", "app.focus_next", "Next", "Next setting", footer=True),
    Action("mc.sampling-previous", "shift+tab,up", "app.focus_previous", "Previous", "Previous setting"),
    Action("mc.sampling-leave", "f2,D", "leave", "Leave", "Back to the dashboard; nothing changes"),
    Action("mc.sampling-back", "escape", "back", "Back", "Back; nothing changes", footer=True),
)

TABLES = (
    DEMO,
    *(CONVERSATION_LIST, CONVERSATIONS, SAMPLING),
    *(PEERS, PEER, WELCOME, CHECK, SPLIT),
    *(HOPS, HOP, TOPOLOGY_LIST, TOPOLOGY),
    *(APP, DASHBOARD, PANE, CHAT, PROMPT, RECOVERY, LOGS, LOG_PANE, LOGS_SCREEN),
    *(MODEL_LIST, MODELS, PAIRING, MAC_LIST, TRUST, ROW_LIST, BATCH, TIMELINE, KEY_LIST, API, ASKING, HELP),
)

EVERYTHING = tuple(action for table in TABLES for action in table)

OUR_IDS = frozenset(a.id for a in EVERYTHING)
