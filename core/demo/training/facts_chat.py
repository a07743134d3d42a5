"""Facts: conversations on the screen: branches, search, drafts, the palette, and screens for everyone."""

from __future__ import annotations

from core.demo.training.facts import fact

FACTS = (
    fact(
        "branches", "what", "a branch of a conversation|branches|the figure 2/3 at a message",
        "what becomes of the old answer after a retry?|is my first question lost after an edit?|what does 2/3 mean?",
        "stays/keeps,beside,<",
        "An edit or a retry loses nothing: what was there stays beside it as a branch, and < and > go there.",
        "A branch keeps the earlier version beside the new one: 2/3 says which is shown, < and > change it.",
    ),
    fact(
        "searchall", "ask", "",
        "how do i search all my messages?|how do i find what was said weeks ago?|can i search in old chats?",
        "C,search",
        "Open the conversations with C and press /: it searches all messages of all of them.",
        "Press C, then /, and type: every message of every conversation is searched.",
    ),
    fact(
        "drafts", "happens", "i quit before i sent my text|i typed a question and did not send it",
        "is unsent text lost when i quit?|does it keep a draft of my prompt?|what is a draft?",
        "not sent/typed,there again",
        "What you typed and have not sent is there again after quitting.",
        "Your text that was not sent is kept as a draft: it is there again at the next start.",
    ),
    fact(
        "slash", "what", "slash commands|the slash commands|commands in the prompt",
        "which slash commands are there?|can i type commands into the chat?|list the commands with a slash",
        "help,model,temp,quit",
        "In the prompt you can type /help, /model, /system, /temp, /save, /new and /quit.",
        "The slash commands are /help, /model, /system, /temp, /save, /new and /quit.",
    ),
    fact(
        "slashtemp", "ask", "",
        "how do i set the temperature by typing?|how do i write a system prompt by typing?",
        "temp,system",
        "Type `/temp 0.7` or `/system TEXT` in the prompt: it sets what it names.",
        "`/temp 0.7` sets the temperature, and `/system TEXT` the system prompt.",
    ),
    fact(
        "savename", "ask", "", "",
        "/save,alone",
        "No: /save stands alone and asks for the name itself. Nothing behind it is sent to the model.",
        "Type /save alone: it asks for a name. Words behind it are no question to the model.",
    ),
    fact(
        "paletterecent", "ask", "",
        "what comes first in the palette?|does the palette know other names?|"
        "does the palette remember what i chose?",
        "palette,last/recent",
        "The palette lists first what you chose last, shows keys, and finds commands by other names such as undo.",
        "What was chosen last is first in the palette; other words such as history or dark are found, too.",
    ),
    fact(
        "plain", "what", "--plain|the --plain option|the plain screen",
        "does it work with a screen reader?|can i use it without frames?|is there a mode for blind people?",
        "--plain,screen readers",
        "--plain draws plain ASCII without frames, one thing below the other, for screen readers.",
        "With --plain there are no frames and no colours to rely on: it is made for screen readers.",
    ),
    fact(
        "slowlink", "what", "--slow-link|the --slow-link option",
        "my connection is slow, can the screen draw less?|how do i spare a slow line?",
        "--slow-link",
        "--slow-link spares a slow line: the screen draws less often.",
        "With --slow-link less is drawn, for a slow connection.",
    ),
    fact(
        "changekeys", "ask", "",
        "can i change the keys?|how do i use my own shortcuts?|are keys configurable?",
        "config.toml",
        "Yes: keys can be changed in ~/.config/macluster/config.toml; `macluster keys` names them.",
        "Give them other keys in config.toml. The command `macluster keys` says what each is called.",
    ),
    fact(
        "chatsealed", "ask", "",
        "where are my chats stored?|are my conversations encrypted on disk?|who can read my old chats?",
        "sealed,this mac",
        "Conversations are sealed on this Mac's disk, and no other Mac has them.",
        "They lie sealed on this Mac; v keeps nothing of one.",
    ),
    fact(
        "interactive", "ask", "",
        "can i chat without the screen?|how do i have a conversation in the shell?|"
        "what does macluster run do without a prompt?",
        "macluster run model,conversation",
        "`macluster run MODEL` without a prompt is a conversation in the terminal.",
        "Type `macluster run MODEL`: it is a conversation in the terminal, and Ctrl+C stops an answer.",
    ),
    fact(
        "keepnothing", "what", "--keep-nothing|the --keep-nothing option|the keep-nothing option of run",
        "can macluster run leave nothing on this mac?|which option keeps nothing of an answer?",
        "--keep-nothing",
        "`macluster run MODEL --keep-nothing -p TEXT` answers, and nothing of it stays on this Mac.",
        "With --keep-nothing a run leaves nothing of the conversation on this Mac.",
    ),
    fact(
        "export", "ask", "",
        "how do i export a chat?|can i save a conversation as markdown?|how do i get a chat into a file?",
        "ctrl+p,export",
        "Open the palette with Ctrl+P and choose \"Export this conversation to a file\".",
        "Ctrl+P, then export: the conversation becomes a Markdown or JSON file.",
    ),
    fact(
        "contextfull", "happens", "i send more than the context holds|my prompt is longer than the context|"
        "the context is full",
        "what if my text is too long?|is there a warning before the context is full?",
        "warns,context",
        "The prompt warns before you send more than the context holds. A longer context helps: c in the picker.",
        "You are told before sending: it warns when the text is longer than the context.",
    ),
)  # fmt: skip
