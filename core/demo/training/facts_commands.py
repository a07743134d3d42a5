"""Facts: the commands of `macluster`, their options, and files."""

from __future__ import annotations

from core.demo.training.facts import command_pair, fact

FACTS = (
    *command_pair("tui", "macluster", "open the screen|start the terminal interface|start macluster|open the dashboard",
              "opens the screen and starts the node of this Mac if none runs", "screen,node",
              "how do i start macluster?|how do i open the app?|how do i launch it|what do i type to get this screen?"),
    *command_pair("demo", "macluster demo", "see a demo|try macluster on one mac|run the demo|simulate three macs|"
    "try it without other macs",
              "simulates three Macs on this one and splits a small model over them", "three macs,simulate",
              "how do i start the demo?|can i try it on one mac?|what do i type to try it out?"),
    *command_pair("status", "macluster status", "see the state of the cluster|see the whole state in plain text|"
    "check whether all macs are there|"
              "see how the cluster is doing", "prints this Mac, its peers, the trust and the plan", "peers,plan",
              "is there a status command?|how do i see the state as text?|"
              "how do i check the cluster without the screen?"),
    *command_pair("models", "macluster models", "list my models|see which models fit|list the models in the shell|"
    "print all models",
              "lists the models on this Mac and how they fit", "models,fit",
              "is there a command that lists models?|which models do i have, as text?|models command?"),
    *command_pair("plan", "macluster plan MODEL", "see a plan before loading|preview the split of a model|"
    "find out who would own which layers|"
              "print the plan of a model", "shows which Mac would own which layers, and loads nothing", "layers,mac",
              "can i see the split before i load?|plan command?|is there a dry run for loading?"),
    *command_pair("load", "macluster load MODEL", "load a model from the shell|split a model over the paired macs|"
    "load a model by command|"
              "load a model in a script", "splits a model over the paired Macs and waits until it is ready",
              "paired,model",
              "is there a command that loads a model?|load command?|how do i load without the screen?"),
    *command_pair("unload", "macluster unload", "free the memory on all macs|unload the model from the shell|"
    "give the memory back|"
              "unload by command", "frees the memory on every Mac", "frees,memory",
              "is there an unload command?|unload command?|how do i free the memory in the shell?"),
    *command_pair("run", "macluster run MODEL -p TEXT",
    "get one answer on standard output|ask one question in the shell|"
              "use a model in a script|print one answer", "prints one answer to standard output, and loads the model "
              "if need be",
              "answer,standard output", "is there a command for a single answer?|run command?|"
              "how do i ask from a script?"),
    *command_pair("hop", "macluster bench hop", "measure a hop|find out what sealing costs|"
    "compare a sealed hop with raw tcp|time a hop",
              "measures a sealed hop against raw TCP of the same bytes", "hop,tcp",
              "is there a bench for a hop?|what does a hop cost, how do i measure it?|hop bench?"),
    *command_pair("solo", "macluster bench solo", "compare the split with one process|measure the cost of splitting|"
    "compare with plain mlx-lm|"
              "bench the split against a single process", "compares a split model with the same model in one process",
              "split,one process", "is there a bench against one process?|solo bench?|"
              "how slow is splitting, how do i measure it?"),
    *command_pair("node", "macluster node", "run the node without a screen|start only the node|"
    "run macluster on a mac without a display|"
              "start the service alone", "runs the node of this Mac without a screen", "node,without a screen",
              "node command?|how do i start the service on a headless mini?|can the node run without a screen?"),
    *command_pair("peers", "macluster peers", "list the peers|see which macs were found|print all macs that were seen",
              "lists the Macs that were seen", "macs,seen",
              "is there a command that lists macs?|peers command?|which macs are there, as text?"),
    *command_pair("pair", "macluster pair", "pair with another mac in the shell|let another mac in by command|"
    "pair two macs without the screen",
              "lets another Mac in by six digits that are typed on both", "six digits",
              "is there a command that pairs macs?|pair command?|how do i pair over ssh?"),
    *command_pair("trust", "macluster trust list", "see who is trusted in the shell|list the trust of all macs|"
    "print the trust levels of my macs",
              "lists every Mac with its level, its role and what it sees", "level,role",
              "is there a command about trust?|trust command?|how do i read the trust as text?"),
    *command_pair("revoke", "macluster trust revoke MAC",
    "revoke a mac|put a mac out for good|throw a mac out by command",
              "puts a Mac out for good, on every member", "out for good",
              "is there a command that throws a mac out?|revoke command?|how do i block a mac for ever?"),
    *command_pair("session-save", "macluster session save NAME", "save a conversation|keep a conversation for later|"
    "save the last chat|save a session",
              "keeps the conversation whose answer ended last", "keeps,conversation",
              "is there a command that saves a chat?|how do i keep this conversation by command?|"
              "session save command?"),
    *command_pair("session-load", "macluster session load NAME", "bring a saved conversation back|load a session|"
    "load a saved chat|restore a conversation",
              "brings a saved conversation back to the Macs", "saved conversation,back",
              "is there a command that loads a conversation?|how do i get my saved chat back?|session load command?"),
    *command_pair("session-list", "macluster session list", "see my saved conversations|list the sessions|"
    "list saved chats|find a saved conversation",
              "lists the conversations that were saved", "lists,conversations",
              "which conversations are saved?|where do i see my sessions?|session list command?"),
    *command_pair("session-delete", "macluster session delete NAME", "forget a saved conversation|delete a session|"
    "remove a saved chat|throw a session away",
              "forgets a saved conversation, and its key", "forgets,conversation",
              "is there a command that deletes a chat?|how do i get rid of a saved chat?|session delete command?"),
    fact(
        "benches", "what", "the benches|macluster bench|the bench command",
        "which benches are there?|what can i measure with bench?|list the benches|how do i measure macluster?",
        "hop,solo,batch,prefill,compare",
        "The benches are hop, solo, loop, compare, plain, batch, pair, prefill, topology, tensor, reuse, scenarios and "
        "more: each measures something beside another.",
        "`macluster bench` takes hop, copy, solo, loop, compare, batch, pair, prefill, tensor, scenarios and others.",
    ),
    fact(
        "json", "what", "the --json option|--json|json output",
        "how do i get json?|can programs read the output?|is there machine readable output?|what does --json print?",
        "--json,program",
        "With --json a command prints its facts as one JSON value, for programs to read.",
        "--json makes the output readable for a program: one JSON value instead of text.",
    ),
    fact(
        "exit", "what", "the exit status|the exit code|the exit codes",
        "what does exit status 1 mean?|which exit codes are there?|what does exit code 2 mean?|"
        "how does a script know if it failed?",
        "0,1,2,failed",
        "The exit status is 0 when it worked, 1 when it failed, and 2 for wrong use.",
        "0 means done, 1 failed, 2 wrong use of the command.",
    ),
    fact(
        "stdin", "ask", "",
        "how do i read the prompt from a file?|can i pipe text into macluster run?|can run read standard input?|"
        "what does -p - mean?|how do i pipe a prompt?|can the prompt come from stdin?",
        "-p -,standard input",
        "Use `-p -`: then `macluster run` reads the prompt from standard input.",
        "With `-p -` the prompt is taken from standard input, so you can pipe text into it.",
    ),
    fact(
        "maxtokens", "what", "--max-tokens|the --max-tokens option|the max-tokens option",
        "how do i make answers longer?|how do i limit the length of an answer?|why does an answer stop at 200 tokens?|"
        "what is the default length of an answer?",
        "--max-tokens,200",
        "--max-tokens limits the length of an answer on the command line. The default is 200 tokens.",
        "At most 200 tokens are written by default; --max-tokens sets another number.",
    ),
    fact(
        "contextoption", "what", "--context|the --context option|the context option",
        "how do i change the context length?|can i have more context?|how do i set a longer context?|"
        "which option sets the context?",
        "--context,tokens",
        "--context sets how many tokens of context are planned for, such as `macluster load MODEL --context 8192`.",
        "The option --context takes a number of tokens; more tokens need more KV cache.",
    ),
    fact(
        "memoryoption", "what", "--memory|the --memory option|the memory option of the demo",
        "how do i change the memory of the simulated macs?|can the demo have other macs?|"
        "how do i simulate other budgets?",
        "--memory,gb",
        "--memory gives the simulated Macs other budgets in GB, such as `macluster demo --memory 64,32,16`.",
        "The demo takes --memory with a list of GB, the head first.",
    ),
    fact(
        "macsoption", "what", "--macs|the --macs option|the macs option of the demo",
        "can the demo simulate more macs?|how do i simulate two macs?|how many macs can the demo have?|"
        "can the demo have five macs?",
        "--macs,8",
        "`macluster demo --macs N` simulates N Macs, from 1 to 8.",
        "The option --macs says how many Macs the demo simulates, at most 8.",
    ),
    fact(
        "modeloption", "what", "--model|the --model option|the model option of the demo",
        "can the demo use another model?|how do i run the demo with my own model?|"
        "can i put a real model into the demo?",
        "--model,dir/folder",
        "`macluster demo --model DIR` runs the demo with the model in that folder.",
        "Give the demo a folder with --model, and it splits that model instead of me.",
    ),
    fact(
        "promptoption", "what", "--prompt|the --prompt option|the prompt option of the demo",
        "can the demo ask something else?|how do i choose the question of the demo?|what does the demo ask?",
        "--prompt,question/ask",
        "`macluster demo --prompt TEXT` asks your own question without the screen.",
        "With --prompt you choose what the demo asks; otherwise it is the question how macluster splits a model.",
    ),
    fact(
        "multicast", "what", "--no-multicast|the --no-multicast option",
        "how do i turn bonjour off?|can i use macluster without bonjour?|how do i avoid multicast?|is bonjour needed?",
        "--no-multicast,bonjour",
        "--no-multicast turns Bonjour off; the Macs then use direct addresses.",
        "With --no-multicast there is no Bonjour, and addresses are used directly.",
    ),
    fact(
        "homefolder", "ask", "",
        "where does macluster keep its files?|where is the state folder?|where is the log file?|"
        "which folder belongs to macluster?|"
        "where are keys and logs stored?|what is in ~/.macluster?|where does it save things?",
        ".macluster",
        "In ~/.macluster: keys, rosters, models and the log node.log lie there. MACLUSTER_HOME names another folder.",
        "The state folder is ~/.macluster. You can move it with --home or MACLUSTER_HOME.",
    ),
    fact(
        "homeoption", "what", "--home|the --home option|macluster_home",
        "how do i use another state folder?|can i move the state folder?|which variable sets the state folder?",
        "folder,state",
        "--home names another state folder; the variable MACLUSTER_HOME does the same.",
        "It sets the state folder, which is ~/.macluster otherwise.",
    ),
    fact(
        "port", "ask", "",
        "which port does macluster use?|what port do the nodes listen on?|which port must i open?|"
        "what is the port number?|"
        "is there a port for the firewall?|on which port do nodes talk?",
        "4717",
        "Nodes listen on port 4717 unless --port says otherwise.",
        "The control port is 4717.",
    ),
    fact(
        "python", "ask", "",
        "which python do i need?|what python version does macluster need?|what is macluster written in?|"
        "which language is macluster made with?|is it written in python?",
        "python,3.11",
        "macluster is written in Python and needs version 3.11 or later.",
        "It is a Python program for Python 3.11 and newer.",
    ),
    fact(
        "textual", "ask", "",
        "what is the screen made with?|which library draws the screen?|which ui library is used?|"
        "how is the terminal ui built?|"
        "what is the interface built with?",
        "textual",
        "The screen is made with Textual, a Python library for terminals.",
        "Textual draws it: a library for terminal interfaces.",
    ),
    fact(
        "licence", "ask", "",
        "what licence does macluster have?|is macluster free?|is it open source?|what does it cost?|"
        "may i change the code?|"
        "under which license is it?",
        "mit",
        "macluster is free software under the MIT licence.",
        "It has the MIT licence: you may use and change it.",
    ),
    fact(
        "commands", "what", "the commands|the command line|all commands of macluster",
        "which commands are there?|list the commands|what can i type in the shell?|what commands does macluster have?",
        "demo,status,pair,trust,models,plan,load,run,bench",
        "The commands are demo, node, serve, status, doctor, verify, pair, trust, models, download, plan, load, run, "
        "session, trace, bench and more.",
        "There are demo, node, serve, status, doctor, pair, trust, models, download, copy, plan, load, run, unload, "
        "session and bench, among others.",
    ),
    fact(
        "notty", "happens", "there is no terminal|i run the demo in a pipe|the demo has no tty|"
        "i run the demo in a script",
        "does the demo work without a terminal?|can the demo print plain text?|"
        "does the demo end by itself in a script?",
        "plain text,end",
        "Without a terminal the demo prints plain text, answers one question and ends by itself.",
        "Then the demo writes plain text: the plan, an answer and the hops. After that it ends.",
    ),
    fact(
        "gpu", "ask", "",
        "does it use the gpu?|does macluster run on the gpu?|what computes the model on a mac?|is metal used?|"
        "cpu or gpu?",
        "gpu,mlx",
        "On a Mac, MLX computes on the GPU. On other machines MLX runs on the processor.",
        "MLX uses the GPU of the Mac.",
    ),
    fact(
        "linux", "ask", "",
        "does macluster run on linux?|can i use a pc?|does it work on windows?|do i need a mac?|"
        "can i use it without a mac?|"
        "is linux supported?",
        "mac,linux",
        "It is made for Macs. On Linux it runs on the processor, which is good enough for trying and testing.",
        "macluster is meant for Macs; Linux works for tests, with MLX on the processor.",
    ),
)  # fmt: skip
