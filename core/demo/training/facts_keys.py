"""Facts: which key does what, and what the screen shows."""

from __future__ import annotations

from core.demo.training.facts import fact, key_pair

FACTS = (
    *key_pair("models", "Ctrl+O", "open the model picker|choose a model|pick another model|see the list of models|"
          "switch to another model|load a model on the screen|change the model|select a model",
          "opens the model picker", asks="where is the model picker?|how do i get to the model list|model picker key?"),
    *key_pair("help", "F1", "open the help|get help|see all keys|show the help screen|find help|read the help|"
    "list the keys",
          "opens the help for the focused pane", asks="i am lost, where is the help?|help key?|"
          "is there a help screen?"),
    *key_pair("palette", "Ctrl+P", "open the palette|open the command palette|see all commands|search for a command|"
    "find any action",
          "opens the palette with all commands", asks="where do i find every action?|palette key?|"
          "is there a command palette?"),
    *key_pair("new", "Ctrl+N", "start a new chat|begin a new conversation|forget the conversation|clear the chat|"
    "start over",
          "starts a new chat", asks="new chat key?|how to reset the conversation|i want an empty chat, which key?"),
    *key_pair("retry", "Ctrl+R", "ask the last question again|retry the last question|repeat my last question|"
    "try the answer again|"
          "get another answer to my question", "asks the last question again",
          asks="retry key?|how can i have the answer again|redo key?"),
    *key_pair("stop", "Esc",
    "stop the answer|stop the model|interrupt the answer|make it stop writing|cancel an answer|"
    "go one step back",
          "stops the answer, or goes one step back", asks="how do i make it stop|"
          "it talks too long, how do i stop it?|stop key?"),
    *key_pair("quit", "Ctrl+Q", "quit macluster|leave the program|quit|exit the app|close the screen|get out of here",
          "quits the screen", asks="how do i get out?|exit key?|quit key?"),
    *key_pair("copy", "Ctrl+C", "copy the selection|copy selected text|copy what i selected",
          "copies the selection, and stops the answer if nothing is selected",
          asks="i selected some text, how do i copy it?|does ctrl+c quit?"),
    *key_pair("pane1", "1", "go to the peers pane|see the peers|show the macs|look at the list of macs",
          "goes to the Peers pane", "outside the prompt", asks="peers pane key?|which pane lists the macs?"),
    *key_pair("pane2", "2", "go to the layer split pane|see the layer split|show who has which layers",
          "goes to the Layer split pane", "outside the prompt", asks="layer split pane key?|"
          "in which pane is the split?"),
    *key_pair("pane3", "3", "go to the hops pane|see the hops|look at the hops",
          "goes to the Hops pane", "outside the prompt", asks="hops pane key?|in which pane are the hops?"),
    *key_pair("pane4", "4", "go to the logs pane|see the logs|read the log|look at the log lines",
          "goes to the Logs pane", "outside the prompt", asks="logs pane key?|in which pane are the logs?"),
    *key_pair("pane5", "5", "go to the chat|go to the chat pane|get back to the chat|focus the conversation",
          "goes to the Chat pane", "outside the prompt", asks="chat pane key?|in which pane is the chat?"),
    *key_pair("panes", "F2", "show one pane alone|open a pane full screen|switch between one pane and the dashboard|"
    "get back to the dashboard",
          "shows one pane alone, or the dashboard again", asks="one pane only, which key?|"
          "how can i see just one pane?"),
    *key_pair("zoom", "z", "zoom a pane|zoom the focused pane|make a pane larger|enlarge a pane|unzoom a pane",
          "zooms the focused pane, or puts it back", "outside the prompt",
          asks="zoom key?|the pane is too small, what can i press?"),
    *key_pair("tab", "Tab", "go to the next pane|move the focus|jump to the next pane|change the focus",
          "moves to the next pane", asks="next pane key?|how can i reach the other panes?"),
    *key_pair("yank", "y", "copy a message|copy an answer|copy the text of a pane|copy the marked message",
          "copies the message or the text of the pane", "outside the prompt", asks="copy message key?|"
          "how can i copy the last answer?"),
    *key_pair("code", "Y", "copy a code block|copy the code|copy the last code block|copy only the code",
          "copies the last code block of the message", "in the chat", asks="copy code key?|"
          "there is code in the answer, how do i copy it?"),
    *key_pair("previous", "[", "mark the previous message|go to the message before|select the earlier message",
          "marks the previous message", "in the chat", asks="previous message key?|how do i get to the message above?"),
    *key_pair("nextmessage", "]", "mark the next message|go to the message after|select the later message",
          "marks the next message", "in the chat", asks="next message key?|how do i get to the message below?"),
    *key_pair("end", "End",
    "follow the answer again|go to the end of the chat|jump to the newest text|see the latest text",
          "goes to the end of the chat and follows it", "in the chat", asks="latest text key?|"
          "i scrolled up, how do i get down again?"),
    *key_pair("send", "Enter", "send a message|send my question|send the prompt|submit the prompt",
          "sends the message", "in the prompt", asks="send key?|i typed a question, what now?"),
    *key_pair("newline", "Ctrl+J",
    "write a new line|start a new line in the prompt|insert a line break|type several lines",
          "starts a new line", "in the prompt", asks="line break key?|how can i write two lines?"),
    *key_pair("earlier", "Up", "get an earlier message back|recall my last message|see the history of my prompts",
          "brings an earlier message back", "in the empty prompt", asks="history key?|"
          "can i get my old question back into the prompt?"),
    *key_pair("follow", "f", "follow the log|follow new log lines|stop following the log",
          "follows new log lines, or stops following", "in the logs",
          asks="follow key?|the log runs away, how do i hold it?"),
    *key_pair("level", "l", "change the log level|see fewer log lines|filter the logs by level|hide log lines",
          "changes the least log level that is shown", "in the logs", asks="log level key?|"
          "there are too many log lines"),
    *key_pair("filter", "/", "filter the models|search in the model list|find a model by name",
          "filters the models by name", "in the model picker", asks="filter key?|"
          "i have many models, how do i find one?"),
    *key_pair("sort", "s", "sort the models|change the order of the models|order the model list",
          "sorts the models by fit, size or name", "in the model picker",
          asks="sort key?|can the model list be sorted?"),
    *key_pair("unload", "u", "unload the model|free the memory with a key|remove the model from memory",
          "unloads the model", "in the model picker", asks="unload key?|which key frees the memory?"),
    *key_pair("top", "g", "go to the top|scroll to the top|jump to the first line",
          "goes to the top", "in a pane", asks="top key?|how do i see the start of the log?"),
    *key_pair("down", "j", "scroll down|move down|go one line down", "scrolls down",
    "in a pane", asks="scroll down key?|"
    "how do i scroll without a mouse?"),
    *key_pair("up", "k", "scroll up|move up|go one line up", "scrolls up", "in a pane", asks="scroll up key?|"
    "how do i scroll back?"),
    *key_pair("pair", "p", "pair with another mac on the screen|open the pairing dialog|let another mac in|add a mac",
          "opens the pairing dialog", "outside the prompt", asks="pairing key?|which key starts pairing?"),
    *key_pair("trust", "t", "open the trust screen|see who is trusted how far|look at the trust of all macs",
          "opens the trust screen", "outside the prompt", asks="trust screen key?|where is the trust screen?"),
    fact(
        "panes", "what", "the panes|the dashboard|the five panes|the main screen",
        "which panes are there?|what do i see on the screen?|what is on the dashboard?|how many panes are there?",
        "peers,layer split,hops,logs,chat",
        "There are five panes: 1 Peers, 2 Layer split, 3 Hops, 4 Logs and 5 Chat.",
        "The dashboard shows Peers, Layer split, Hops, Logs and the Chat; the digits 1 to 5 lead to them.",
    ),
    fact(
        "digitkeys", "what", "the keys 1 to 5|the digit keys|the number keys",
        "what do the digits 1 to 5 do?|why are the panes numbered?|how do i jump between panes?",
        "1,5,pane",
        "The digits 1 to 5 jump to the panes: Peers, Layer split, Hops, Logs and Chat.",
        "Each pane has a number from 1 to 5. Press it outside the prompt and you are there.",
    ),
    fact(
        "letters", "why", "do single letters not work in the prompt|is a letter written instead of doing something|"
        "does z not zoom in the prompt",
        "why does pressing y only write a y?|letters do nothing, why?|the keys do not work in the prompt",
        "prompt,esc/tab",
        "In the prompt letters are text. Press Esc or Tab to leave it, and then single letters act as keys.",
        "While the prompt has the focus, you write. Leave it with Tab or Esc, then letters are keys.",
    ),
    fact(
        "peerspane", "what", "the peers pane|pane 1|the first pane",
        "what does the peers pane show?|what is in pane 1?|where do i see all macs?",
        "mac,memory,layers",
        "The Peers pane lists every Mac with its state, its memory and its layers.",
        "Pane 1 shows the Macs: how they are, how much memory they have, and which layers they own.",
    ),
    fact(
        "splitpane", "what", "the layer split pane|pane 2|the second pane",
        "what does the layer split pane show?|what is in pane 2?|what do the bars of the split mean?",
        "layers,mac,bar",
        "The Layer split pane shows as a bar how many layers each Mac holds.",
        "Pane 2 draws all layers as one bar and marks which Mac holds which part.",
    ),
    fact(
        "hopspane", "what", "the hops pane|pane 3|the third pane",
        "what does the hops pane show?|what is in pane 3?|where do i see how fast the links are?",
        "hop,time,slowest",
        "The Hops pane shows the time of every hop over the last minute, and names the slowest.",
        "Pane 3 draws each hop with its time per token. The slowest hop is named.",
    ),
    fact(
        "logspane", "what", "the logs pane|pane 4|the fourth pane",
        "what does the logs pane show?|what is in pane 4?|where do i see what happens?|where is the whole log?",
        "node,log,lines",
        "The Logs pane shows what the nodes report, newest lines at the bottom. The whole log is in the file node.log.",
        "Pane 4 holds the log lines of the nodes; f follows them and l sets the level.",
    ),
    fact(
        "marks", "what", "the marks before a mac|the glyphs|the dots beside the macs",
        "what does the dot beside a mac mean?|what does the triangle mean?|what does the cross beside a mac mean?",
        "●,▲,✗,○",
        "● means connected, ▲ suspect, ✗ lost and ○ only seen.",
        "The marks are states: ● connected, ▲ suspect, ✗ lost, ○ seen but not linked.",
    ),
    fact(
        "pickermarks", "what", "the marks in the model picker|the check mark in the picker|the signs before a model",
        "what does the check mark beside a model mean?|what does the cross beside a model mean?|"
        "how does the picker show what fits?",
        "✓,fits,✗",
        "In the picker ✓ fits, ● is loaded, and ✗ does not fit.",
        "✓ means that the model fits, ✗ that it does not, and ● that it is loaded.",
    ),
    fact(
        "theme", "ask", "",
        "how do i change the theme?|can i change the colours?|is there a dark theme?|how do i get other colors?|"
        "where is the theme setting?|can i switch to a light theme?|is there a theme for colour-blind people?",
        "ctrl+p,theme",
        "Open the palette with Ctrl+P and choose \"Change the theme\".",
        "Press Ctrl+P, type theme and choose one.",
    ),
    fact(
        "mouse", "ask", "",
        "do i need a mouse?|can i use the mouse?|does it work without a mouse?|is the mouse supported?|"
        "can i click on things?",
        "mouse,key",
        "No mouse is needed: every action has a key or stands in the palette. You may click and scroll if you like.",
        "The mouse is optional. Everything can be done by keys.",
    ),
    fact(
        "smallterm", "happens", "the terminal is small|my terminal window is too small|i make the window smaller",
        "does it work in a small window?|which terminal size do i need?|does 80x24 work?",
        "80x24,chat",
        "At 80x24 you see the chat with a strip about the Macs; other panes open alone by F2 or a digit.",
        "A window of 80x24 is enough: then the chat comes first, and the panes open one at a time.",
    ),
    fact(
        "wherecopied", "ask", "",
        "where does copied text go?|copy does not work over ssh|how does copying work?|which clipboard is used?|"
        "does copy work in a remote terminal?",
        "clipboard,file",
        "Into the clipboard of the Mac, or through the terminal; if neither works, into a file that it names.",
        "It goes to the clipboard. If the terminal has none, the text is put into a file.",
    ),
    fact(
        "ssh", "ask", "",
        "does macluster work over ssh?|can i use it over ssh?|can i run it on a remote mac?|"
        "does the screen work over ssh?|"
        "is ssh supported?",
        "ssh,yes/works",
        "Yes, it works over SSH. The screen then draws less often to spare the connection.",
        "Over SSH it works too; it just repaints 15 times a second instead of 30.",
    ),
    fact(
        "picker", "what", "the model picker|the picker",
        "what does the model picker show?|what can i do in the model picker?|what is the fit preview?",
        "models,fit",
        "The model picker lists the models of this Mac and shows how each one would fit your Macs.",
        "In the picker you see all models with their size, and a preview of how the layers would fit.",
    ),
    fact(
        "confirmfigures", "what", "the figures under an answer|the line below an answer",
        "what are the numbers under an answer?|what stands below an answer?|where do i see how fast an answer was?",
        "tokens,second,first token",
        "Under an answer stand its tokens, the tokens per second, and the time to the first token.",
        "The line counts the tokens, and gives the speed per second and the time until the first token.",
    ),
)  # fmt: skip
