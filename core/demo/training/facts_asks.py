"""More ways to ask for facts, by the name of the fact, divided by "|"."""

from __future__ import annotations

from typing import Final

MORE: Final[dict[str, str]] = {
    "macluster": "what is the purpose of this app?|why would i use macluster?|what problem does macluster solve?|"
    "describe this program in one sentence|what did i just start?",
    "mac": "what is a machine in the cluster called?|what do you call the other computers?|who are my peers?",
    "node": "which program runs on each mac?|which service finds and pairs other macs?|what is the per-mac service?|"
    "is the node a process?|what starts the worker?|does the node compute anything?",
    "worker": "which process computes?|which process holds my layers?|how many workers are on a mac?|"
    "what holds the layers in memory?|who does the arithmetic on a mac?",
    "stage": "what is a range of layers called?|is a stage on one mac?|how is a part of the model called?|"
    "what is the share of one mac called?",
    "head": "where was the model loaded?|on which mac is the model loaded?|which mac picks the next token?|"
    "what is the first mac called?|who is in charge of an answer?",
    "hop": "what is the connection between two macs called?|what is a link from one mac to the next?|"
    "how are neighbouring stages linked?|what do hops connect?",
    "lane": "how do rows travel together?|what do several rows form?|what is in a lane?|what holds several rows?",
    "row": "what stands for a request?|what is my request called in a lane?|what is one part of a lane?|"
    "is my question a row?",
    "plan": "what does the plan contain?|where does it say which mac owns a layer?|what is decided in the plan?|"
    "which document names the owners of layers?|what stands in a plan?",
    "ring": "how do the macs form a ring?|what goes round the ring?|why do you say ring?|what path does a token take?|"
    "what is round about it?",
    "layer": "what happens in a layer?|what is a model stacked of?|what do layers do?|what does a single layer do?",
    "hidden": "what data crosses the network?|what goes from one mac to the next?|what is passed between layers?|"
    "what do stages hand to each other?|what kind of data is on the wire?",
    "token": "what does a model write?|how big is a token?|is one token one letter?|what is the unit of text?|"
    "how many letters are in a token?",
    "tokenizer": "who cuts text into tokens?|how does text become tokens?|where does text become numbers?",
    "embedding": "how does a token become numbers?|what is the first step of a model?|"
    "which mac holds the embedding table?",
    "logits": "what are the scores of the next token?|what does the output head make?|what are the scores called?|"
    "what does the model give for each possible token?",
    "sampler": "how does the model choose a word?|where are tokens picked?|what chooses the next token?|"
    "which mac samples?|"
    "how is the next word picked?",
    "temperature": "what should the temperature be?|how do i get more random answers?|what changes with temperature?|"
    "how do i make it more creative?|are answers random?|what is a low temperature?",
    "topp": "which option keeps only likely tokens?|what share does top-p keep?|how do i leave out unlikely tokens?",
    "seed": "how do i make an answer repeatable?|can i repeat an answer exactly?|which option makes sampling repeat?|"
    "why is the answer different each time?",
    "kv": "what are keys and values?|which cache grows with the context?|what does the kv cache hold?|"
    "what does kv mean in this table?|which memory grows during a chat?|what is cached for each token?",
    "prefill": "what does the model do first with my prompt?|how is a prompt read?|"
    "what is going on before the answer starts?|"
    "when is the prompt read?|what is happening while i wait for the first token?",
    "decode": "how is the answer written?|which phase writes tokens?|how does the model write token by token?|"
    "what happens once the first token is there?|what phase follows prefill?",
    "chunk": "how is a long prompt cut?|how are prompts divided?|how big is a chunk?|"
    "in which pieces does prefill work?|"
    "why are prompts sent in pieces?",
    "context": "how long is the context?|how much text can the model look back on?|how much text fits?|"
    "what is the context by default?|how many tokens fit into a conversation?",
    "prompt": "what is my text called?|what does the model read first?|what do i send to the model?",
    "template": "how are turns of a chat marked?|what makes one text of a conversation?|who renders the template?",
    "quantised": "how do weights get smaller?|what makes a model smaller?|"
    "what is the difference between 4-bit and 16-bit?|"
    "what are bits of a model?|does 4-bit lose quality?|what does 8-bit mean?",
    "weights": "what are a model's numbers called?|what takes most of the memory?|what was learned in training?|"
    "what do the model files contain?|what is inside a layer?",
    "safetensors": "can i use a .bin file?|which weight files does macluster read?|what format should a model have?|"
    "are pickle files accepted?|does macluster load gguf or pickle?|which files are safe?",
    "mlx": "what library computes the layers?|who makes mlx?|what do the workers compute with?|is this built on mlx?|"
    "which framework is used?|does it use pytorch or mlx?",
    "mlxlm": "is mlx-lm used?|what knows the model families?|which library brings the models?",
    "slice": "is a full copy of the model on each mac?|how much of the model does a mac load?|"
    "what part does a mac load?|"
    "does each mac hold all weights?|do all macs need the whole model in memory?",
    "tokenlog": "where does the head write tokens?|what is the truth about an answer?|"
    "what is logged before it is shown?",
    "frame": "what is one message on a link called?|what does a frame consist of?|in what units are data sent?|"
    "how big is a frame header?|what is sent as one unit?",
    "batching": "can several people ask at once?|how are many requests handled?|what if many users ask together?|"
    "how do several requests share the ring?",
    "speculation": "can tokens be guessed?|how does guessing ahead work?|what does prompt lookup do?",
    "pipeline": "do the macs work in a row?|how do the macs take turns on a token?|"
    "do the macs work at the same time on a token?|"
    "is it tensor parallelism?|in what order do the macs work?",
    "ttft": "how long do i wait for the first token?|when does the answer begin?|what is the wait before an answer?|"
    "why do i have to wait before it starts?|what makes the start slow?",
    "toks": "how fast is it?|how fast are you?|what does tok/s stand for?|in which unit is speed shown?|"
    "what does the rate mean?|"
    "how many tokens per second?",
    "unified": "what is special about the memory of a mac?|do cpu and gpu share memory?|why use macs and not pcs?",
    "split": "explain the split|how are layers assigned to macs?|how does the layer split work?|"
    "how do you divide a model?|"
    "how are shares of layers computed?|how is a model distributed over macs?|what does macluster do to split a model?|"
    "in what way are layers spread over macs?|model split how|how do layers get to the macs?|how do you split models?",
    "bymemory": "what decides the share of a mac?|why does memory count and not speed?|"
    "why do big macs get more layers?|"
    "why has the mini so few layers?|why are layers given by memory?",
    "contiguous": "why neighbouring layers?|why not every second layer?|could a mac have layers 1 and 5?|"
    "may layers be scattered over the macs?|why one run of layers per mac?",
    "remainder": "how are shares rounded?|how are fractions of layers handled?|how do you round the layers?|"
    "where do the left over layers go?|which mac gets the layer that is left?|what about half layers?",
    "atleastone": "could a mac end up with zero layers?|does even the smallest mac get a layer?",
    "ties": "what if the fractions are equal?|equal remainders, who wins?",
    "usable": "how much of a mac's memory may a worker take?|how much memory is left for me?|"
    "what is kept for my own work?|"
    "will macluster eat all my memory?|how is the budget computed?|does it take all the ram?|how much ram does it use?",
    "setbudget": "how do i set the budget?|can i choose how much memory is used?|how do i give it less memory?|"
    "which option limits the memory?|i want to change the memory budget|can i lower the budget of a mac?",
    "floor": "what is the least budget?|how low can the budget be?|what is the minimum memory of a mac?|"
    "is there a minimum budget?|what does a very small mac offer?",
    "notfit": "what happens with a model that needs more memory than i have?|is a too large model refused?",
    "fitcount": "how is it decided whether a model fits?|what does fit mean?|how does it check that a model fits?|"
    "what is added up for the fit?|when does a model fit?|which numbers decide whether it fits?",
    "capacity": "is it faster with two macs?|will a cluster be quicker?|do i get more speed from another mac?|"
    "is several macs faster than one?|does a cluster speed things up?|if i add a mac, is it faster?|splitting faster?",
    "whysplit": "why use several macs?|what is the advantage of splitting?|why should i use a cluster?|"
    "what is splitting good for?|"
    "what do more macs bring?|what is a cluster good for?|why join macs?",
    "faster": "when do more macs pay off in speed?|for what are several macs quicker?|"
    "when is a cluster faster than one mac?|"
    "what work gets faster with more macs?|when does splitting pay off?",
    "onefits": "is one mac better for a small model?|when is a single mac best?|do i have to split a small model?|"
    "should one mac run it alone?|when is it better not to split?",
    "tokentime": "what costs time per token?|how is the time of one token composed?|what does a token wait for?",
    "network": "is much data sent per token?|how heavy is the network load?|do hops need much bandwidth?|"
    "how much traffic is there?|how large is a hidden state on the wire?|is my network fast enough?",
    "wifi": "is wireless ok?|is ethernet better than wi-fi?|should i use thunderbolt?|"
    "what is the best way to connect the macs?|"
    "what cable should i use?|how should i connect two macs?",
    "topology": "name the topologies|what kinds of topology exist?|which kinds of plan are there by topology?|"
    "list the topologies",
    "private": "what stays on the head?|is my plan private?|who sees token ids?|"
    "which topology keeps tokens on the head?|"
    "can another mac see tokens?|what is the default topology?",
    "forward": "in which topology does the last mac sample?|which topology has the output on the last stage?",
    "reverse": "in which topology does another mac embed?|which topology has the output on the head and embeds "
    "elsewhere?|"
    "what is turned round in reverse?",
    "single": "which topology is for one mac?|what if the plan has only one mac?",
    "macdies": "what if i lose a mac in the middle of an answer?|does the answer go on when a mac fails?|"
    "what becomes of the answer when a mac dies?|is the text lost if a mac crashes?|what if a mac is gone?|"
    "how does macluster handle a dead mac?|what happens to my answer if a mac breaks?|does a dead mac end the answer?",
    "exact": "is the answer still the same when split?|does a split change the quality?|are the results identical?|"
    "is a split model worse?|do i lose quality by splitting?|is splitting exact?|same answer as on one mac?",
    "families": "can it run llama models?|which model families work?|does it support mistral?|what models work?|"
    "which kinds of models are possible?|is my model supported?|can i use any model?",
    "wheremodels": "where should i put my models?|in which directory are models?|where do model files go?|"
    "model folder?|"
    "where do i save a model?|i downloaded a model, where to?",
    "howmanymacs": "is a single mac enough?|how many computers do i need?|must i own several macs?|can one mac do it?|"
    "do i need more than one mac to start?|what is the least number of macs?",
    "samemac": "may the macs differ?|can i use an old mac with a new one?|should the macs be alike?",
    "conversationshare": "do others see what i type?|who sees my prompt?|which mac knows my text?|"
    "is my text visible to other macs?|"
    "what do other macs learn of my words?|do the other macs know my question?",
    "bonjour": "how does discovery work?|how are other macs found?|who finds the macs in my network?|how do macs meet?|"
    "what does discovery use?|how does a mac find its peers?",
    "notfound": "one of my macs is not found|why does it not see my other mac?|why can't it find the mini?|"
    "the other mac does not appear|my second mac is missing",
    "pairing": "how can i pair my macs?|how do macs come to trust each other?|how do i make two macs trust each other?|"
    "how do i connect a new mac?|how is a new mac added?|steps to pair two macs?",
    "digits": "what are the digits for?|what do i type when pairing?|how long is the code?|which digits do i type?|"
    "what numbers are on the screen when pairing?",
    "wrongdigits": "i mistyped the digits|can i type the code again?|may i try again after a wrong code?|"
    "what if i make a mistake in the code?|the code was wrong, can i retry?",
    "guess": "how secure are six digits?|is the pairing code safe?|can a stranger guess the code?|"
    "what is the chance to guess the digits?|are the six digits safe enough?",
    "window": "how many minutes does pairing take at most?|for how long is the code valid?|does the code expire?",
    "roster": "what lists the members?|where are the members listed?|who is in my cluster, where is that kept?|"
    "what is signed and chained?",
    "trustline": "what does the top line say about trust?|how much is the cluster trusted?|"
    "who decides the trust of the cluster?|"
    "why does it name the weakest mac?|what does paired (weakest: mini) mean?|what is the trust level of my cluster?",
    "levels": "what levels of trust exist?|which levels can a mac have?|what are the four levels?|"
    "order of the trust levels?|"
    "what is the scale of trust?|how far can a mac be trusted?",
    "blocked": "what is the lowest level?|what is the lowest trust level?|which macs get nothing?|"
    "can a blocked mac take part?|"
    "which level is worst?",
    "unpaired": "why is my mac not paired?|what is a mac that was only found?|it says unpaired|"
    "does an unpaired mac get prompts?|"
    "why is there not paired beside my mac?",
    "seen": "what is the level between unpaired and paired?|which level has the same key but no confirmation?|"
    "what is a mac with the same key as before?|does a seen mac get prompts?",
    "paired": "what is a confirmed mac called?|which level comes from the digits?|what level do i get by digits?|"
    "is a paired mac trusted?|which level allows prompts?",
    "highest": "what is the best trust level?|is any level better than paired?|what is the top level of trust?",
    "promptlevel": "who may see prompts?|which level is needed for prompts?|when may a prompt go to a mac?",
    "sealing": "how safe is the connection?|which encryption protects a hop?|can someone listen on the wi-fi?|"
    "are links encrypted?|"
    "what protects my data on the network?|tell me about the encryption|what is sealing?|explain the sealing",
    "whytwo": "why encrypt twice?|what does the inner seal bring?|why a seal in addition to tls?|"
    "what is the inner seal for?|"
    "why is one encryption not enough?|two layers of encryption, why?",
    "plaintext": "may i switch the sealing off?|is there an unencrypted mode?|can i disable tls?|"
    "is plaintext possible?",
    "identity": "how are macs identified?|what proves the identity of a mac?|is a mac known by its name?",
    "shortid": "what are the letters beside a name?|why do names have an id?|what is the code behind a mac's name?",
    "pickle": "can a model contain code?|is a model from the internet dangerous?|will code in a model be run?|"
    "does it run remote code?|is trust_remote_code used?|are models safe?|could a model be malware?",
    "malicious": "what is the danger of a paired mac?|from what does pairing not protect me?|"
    "what can an evil paired mac see?|"
    "is it dangerous to pair a stranger's mac?|should i pair a friend's mac?",
    "cloud": "is my data private?|is there a cloud?|must i log in?|do i have to register?|does it need an account?|"
    "are my prompts sent to a server?|who else gets my data?|is there any telemetry?",
    "offline": "can it run offline?|is internet required?|do i have to be online?|works without internet?",
    "escape": "could an answer break my terminal?|are control codes removed?|what happens to escape codes?|"
    "is text from peers cleaned?|can a model send terminal codes?|is the output of a model safe for the terminal?",
    "revoked": "how do i get rid of a stolen mac?|i sold a mac, what should i do?|my mac was stolen|i lost my macbook|"
    "how do i remove a mac from the cluster?|what should i do about a stolen mac?",
    "simulatedtrust": "how secure is the demo?|is the demo encrypted?|do the demo macs pair?|"
    "are the links of the demo sealed?|"
    "is the pairing in the demo real?",
    "key-models": "how do i open the picker?|key for the model picker?|which key for models?|picker key?",
    "key-help": "which key is help?|how do i see the keys?|help please, which key?",
    "key-palette": "which key is the palette?|all commands, which key?",
    "key-new": "clean chat?|key for a new chat?|how do i forget this conversation?",
    "key-retry": "again, which key?|how to repeat the question|key for retry?|how do i redo the answer?|"
    "regenerate key?",
    "key-stop": "stop it, how?|key to stop?|how do i abort an answer?",
    "key-quit": "how to quit|how do i close this?|key to quit?",
    "does-code": "what is capital y for?|what does shift y do?|what does big y do?|and shift y in the chat?",
    "panes": "what are the panes called?|name the panes|what parts has the screen?|how is the screen laid out?",
    "digitkeys": "what do the number keys do?|can i jump to a pane by number?|how do digits work?|"
    "how do i go to a pane by its number?",
    "letters": "why do letters not act as keys?|i press a letter and it is written|single keys don't work",
    "peerspane": "what is shown under peers?|which pane shows memory?|what is listed in the peers pane?|"
    "where are my macs shown?|"
    "where can i see the macs?",
    "splitpane": "what does the bar in pane 2 mean?|what are the bars in the layer split?|"
    "how do i read the layer split?|"
    "what is the long bar?|which pane shows the layers of each mac?",
    "hopspane": "how do i see the slowest hop?|where are link speeds shown?|how fast is each hop, where do i see that?|"
    "which pane shows the time of hops?|where can i see how long a hop takes?",
    "logspane": "what is in the logs?|where do log lines go?|which pane shows messages of the nodes?|"
    "is there a full log?|"
    "where can i find the complete log?|what do the logs show?",
    "marks": "what do the signs beside a mac mean?|what is the circle beside a mac?|explain the glyphs",
    "pickermarks": "what do the signs in the picker mean?|how do i see in the picker whether it fits?|"
    "what does ✓ mean?|what does ✗ mean in the picker?|how is a fitting model marked?",
    "theme": "colours?|dark mode?|how can i change how it looks?",
    "mouse": "can i click?|does clicking work?|is clicking possible?|does the mouse wheel work?|keyboard only?",
    "smallterm": "what is the smallest window?|how large must my terminal be?|is 80 by 24 enough?|can i use 80x24?|"
    "my window is tiny|does it fit 80x24?",
    "wherecopied": "how do i copy over ssh?|where does the copied text end up?|does the clipboard work remotely?|"
    "i copied something, where is it?|can i copy in a remote session?",
    "ssh": "may i use it remotely?|does it run through ssh?|remote use?|can i log in by ssh and use it?",
    "picker": "what is the preview in the picker?|what does the fit preview show?|what do i see in the picker?|"
    "what does the preview of a model say?",
    "confirmfigures": "what do the figures under an answer mean?|where is the speed of an answer shown?|"
    "how do i see the speed of my answer?|what does the last line of an answer say?|what is the line under the answer?",
    "command-plan": "how do i try a load without loading?|dry run?|show the plan without loading, which command?|"
    "can i test whether a model would fit by command?|see the plan first, how?",
    "command-load": "loading without the screen?|can i load a model from a script?|how is a model loaded by command?|"
    "load without the picker?",
    "command-node": "start a mac without a screen, how?|how do i run it on a mac mini without a display?",
    "command-status": "status in the shell?|how do i see in the shell whether all is well?",
    "json": "can i get the output as json?|output for scripts?|how do i parse the output?",
    "exit": "how do i know in a script that it failed?|how do i see that a command failed?|"
    "what is returned on failure?|"
    "what are the return codes?|what does the exit status tell a script?",
    "stdin": "can i pipe a question in?|how do i send a file as prompt?|reading the prompt from a pipe?",
    "maxtokens": "how long is an answer at most?|how long are answers by default?|why was the answer cut?|"
    "what limits the length of an answer?|can answers be longer?",
    "contextoption": "can the context be longer?|how do i raise the context?|more context, how?",
    "memoryoption": "other budgets for the demo?|can i change the sizes of the simulated macs?|"
    "how do i give the demo macs other memory?|simulate macs with other memory?",
    "macsoption": "demo with two macs?|can i simulate eight macs?|how do i get more macs in the demo?",
    "modeloption": "can the demo run a real model?|how do i try my own model in the demo?|another model for the demo?|"
    "demo with my model?",
    "promptoption": "which question does the demo send?|can i choose what the demo asks?|what is asked by the demo?|"
    "what question is the demo's default?",
    "multicast": "my network blocks multicast|without bonjour, possible?|is it possible to avoid bonjour?",
    "homefolder": "where does it store its data?|where are the files of macluster?|what folder does it use?",
    "homeoption": "another folder for the state?|how do i put the state elsewhere?|can the state live somewhere else?",
    "port": "port?|which tcp port is it?|what port number do i need?",
    "python": "what is it programmed in?|which version of python?|programming language?",
    "textual": "what draws the terminal ui?|which toolkit is the ui made of?",
    "licence": "may i use it for free?|is the source open?|what does macluster cost?",
    "commands": "what commands exist?|name the commands|what can i do in the shell?",
    "notty": "what does the demo do in a script?|does the demo need a terminal?|demo without a screen?",
    "gpu": "is the gpu used?|does it need a gpu?|what does the computing?",
    "linux": "is there a windows version?|only macs?|can i try it on linux?|does it need apple hardware?",
    "demo": "what is this demo?|is this real or simulated?|what does the demo simulate?|am i on a real cluster?|"
    "which macs are in the demo?|where does this run?|what am i talking to and where does it run?",
    "demosplit": "how is this model split?|who holds your layers?|how are the 16 layers divided?|"
    "where are your layers?|"
    "which layers are where in the demo?|layers of the three macs?",
    "studiolayers": "how many layers are on studio?|layers on the studio?",
    "mbplayers": "how many layers are on mbp?|layers on the mbp?",
    "minilayers": "how many layers are on mini?|layers on the mini?",
    "studiomem": "memory of the studio?|how much ram has studio?",
    "mbpmem": "memory of the mbp?|how much ram has mbp?",
    "minimem": "memory of the mini?|how much ram has mini?",
    "demohead": "who is head here?|head of the demo?",
    "demohops": "which links are in the demo?|how many links has the demo?|path of a token in the demo?",
    "demoreal": "is it all fake?|what is simulated and what is real?|is the demo honest?|is anything here real?",
    "whoareyou": "what is this model?|who is speaking?|are you chatgpt?|what kind of model are you?|your name?|"
    "who made you?",
    "size": "how many parameters?|are you a big model?|parameter count?",
    "ownlayers": "layers of this model?|how many layers are you made of?|count of your layers?",
    "canyou": "what can we talk about?|what may i ask?|what are you able to do?|how can you help me?|"
    "what is a good question?",
    "cannot": "are you reliable?|how good are you?|should i believe you?|what are you bad at?|how smart are you?",
    "trained": "what data were you trained with?|how did you learn?|where did you learn this?|training data?",
    "whysmall": "why is the demo model so little?|why are you tiny?|what is a tiny model good for?",
    "better": "i want a bigger model|where do i get a smarter model?|how can i load a real model instead of you?|"
    "can you be replaced?|another model please",
    "verified": "is it proven on macs?|does it work on real hardware?|was it tried on real macs?|is it stable?|"
    "how well is it tested?",
    "limits": "what are macluster's limits?|is there a catch?|what is not so good about it?|what does it not do?",
    "languages": "which language can i use?|can i write in german?|other languages?",
    "memory": "do you forget?|is my chat stored in you?|will you know me tomorrow?",
    "feelings": "do you feel anything?|are you a person?|do you think?",
    "whyname": "what does macluster stand for?|the name, why?",
    "firststep": "i have just installed it, what now?|how do i set it up?|quick start?|what comes first?|beginner here",
    "nomodel": "why is there no answer?|i cannot send anything|it says no model|how do i get a model loaded first?",
    "bigmodel": "70b possible?|run a huge model?|could two macs run a big model?|"
    "can i run something larger than my memory?",
    "threeprocesses": "what processes are there?|how is the program divided into processes?|which parts does it have?",
    "slow": "why so slow?|answers take long|how do i get more speed?|what slows it down?|can i make answers quicker?",
}
