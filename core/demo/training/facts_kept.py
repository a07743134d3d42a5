"""Facts: what stays of a conversation: reuse of earlier turns, saved sessions, tokens that are guessed ahead."""

from __future__ import annotations

from core.demo.training.facts import fact

FACTS = (
    fact(
        "reuse", "what", "reuse|prefix reuse|the reuse of earlier turns",
        "is the whole conversation read again each turn?|what does the second turn read?|"
        "why is the second turn so quick?|does a long chat get slower with every turn?|"
        "what stays in memory after an answer?|are earlier turns computed again?|what does the next turn read?",
        "memory,new tokens",
        "What an answer leaves in memory stays on every Mac, so the next turn reads only its new tokens.",
        "Reuse means that earlier turns stay in memory: only the new tokens of a turn are read.",
        why="Reading the same text twice would only cost time.",
    ),
    fact(
        "reuseends", "ask", "",
        "how long does a conversation stay in memory?|when does macluster drop what it kept?|"
        "when is a kept conversation dropped?|how long are earlier turns kept?|does the memory of a chat ever go away?|"
        "what frees the kept turns?|which conversations stay in memory?|when is the cache of a chat dropped?",
        "until,needed,unload",
        "Until the memory is needed, or until the model is unloaded. The newest stay longest.",
        "Kept turns stay until their memory is needed by others or you unload the model.",
    ),
    fact(
        "edited", "happens", "i edit an earlier message|i change an old question|i edit the middle of a conversation",
        "is all read again after an edit?|what is read again when i edit a message?|does an edit cost much time?|"
        "can i change an old message?",
        "before the edit,again",
        "What stands before the edit is kept, and only the rest is read again.",
        "Everything before the edit stays in memory; only what comes behind is read again.",
    ),
    fact(
        "session", "what", "a session|a saved session|sessions|a saved conversation",
        "what is in a session file?|how is a conversation kept for later?|what does a session hold?|"
        "can a conversation be kept?",
        "conversation,keys and values,file",
        "A session is a conversation that was saved: its keys and values of all Macs, in one sealed file.",
        "A saved session holds a conversation with the keys and values of every Mac, in one sealed file.",
        why="So a long conversation can go on later without being read again.",
    ),
    fact(
        "sessionmoves", "ask", "",
        "can a conversation move to other macs?|can i load a session on another split?|"
        "does a session need the same macs?|can i go on with a session on one mac?|can a session be moved?|"
        "must the split be the same for a session?|on which macs can a session be loaded?|"
        "does a saved session fit another plan?",
        "any split,same model",
        "A session goes onto any split of the same model: over other Macs, in another order, or on one.",
        "Yes: any split will do, as long as it is the same model.",
    ),
    fact(
        "sessionoption", "what", "--session|the --session option|the session option of run",
        "how does run go on with a session?|how do i ask on in a saved session?|which option takes a session?",
        "--session,goes on",
        "`macluster run MODEL --session NAME -p TEXT` goes on with a saved conversation.",
        "With --session a run goes on with the conversation of that name.",
    ),
    fact(
        "sessionscreen", "ask", "",
        "how do i save the chat on the screen?|can i keep this chat without the shell?|"
        "where in the palette do i keep a conversation?|how do i name a conversation and keep it?|"
        "which palette entry saves a chat?|how do i take up a kept conversation on the screen?|"
        "can the screen save a conversation?",
        "save,session,palette",
        "Type /save in the prompt, or choose \"Save this conversation as a session\" in the palette (Ctrl+P).",
        "/save in the prompt does it, and so does the palette: \"Save this conversation as a session\".",
    ),
    fact(
        "sessionsealed", "ask", "",
        "is a saved session encrypted?|can somebody read my saved conversation?|are session files sealed?|"
        "is a saved chat safe on disk?|who can open a session file?|how is a session protected?|"
        "do sessions lie in clear on the disk?",
        "sealed,key",
        "A saved session is sealed with a key that only this Mac has.",
        "Yes: session files are sealed, and only this Mac has the key.",
    ),
    fact(
        "guesshelps", "ask", "",
        "when does guessing ahead help?|does speculation always help?|when is speculation faster?|"
        "for which text does speculation help?|does guessing ahead stop by itself?|is speculation always on?|"
        "when are tokens guessed?|what text comes faster by guessing?",
        "repeats,stops",
        "It helps where the text repeats itself, for one user. Where it is no use, it stops by itself.",
        "For one user and text that repeats itself. Guessing stops by itself where it does not help.",
    ),
    fact(
        "wrongguess", "happens", "a guess is wrong|a guessed token is wrong|speculation guesses wrong",
        "can a wrong guess change the answer?|does speculation change the answer?|what about wrong guesses?|"
        "are guessed tokens safe?",
        "guess,changes nothing",
        "A wrong guess changes nothing: the model checks every one, and the answer stays the same.",
        "Nothing bad: each guess is checked by the model, and a wrong one changes nothing.",
        why="Only what the model itself would have written counts.",
    ),
)  # fmt: skip
