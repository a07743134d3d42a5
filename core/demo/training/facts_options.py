"""Facts: the options of loading and asking, topologies by option, and what a plan proves."""

from __future__ import annotations

from core.demo.training.facts import fact

FACTS = (
    fact(
        "topologyoption", "what", "--topology|the --topology option|the topology option",
        "how do i choose a topology?|which option sets the topology?|can i load a model in forward?|"
        "how do i load in reverse?|how do i change the topology?",
        "--topology,private",
        "--topology takes private, forward, reverse, single or tensor, such as `macluster load MODEL --topology "
        "forward`.",
        "With --topology you choose private, forward, reverse, single or tensor when you plan, load or run.",
    ),
    fact(
        "topologykey", "ask", "",
        "how do i change the topology in the picker?|which key plans another topology?|"
        "is there a key for the topology?|what does shift+t do in the model picker?|next topology, which key?|"
        "how do i see a model in another topology?|key for the next topology?",
        "T,picker,topology",
        "In the model picker T plans the model in the next topology.",
        "Press T in the picker: it goes to the next topology.",
    ),
    fact(
        "topologysame", "ask", "",
        "does the topology change the answer?|is the answer the same in every topology?|"
        "do forward and private give the same tokens?|does reverse change my answer?|"
        "are the tokens different in forward?|is one topology more exact?",
        "same,every topology",
        "No: the answer is the same in every topology.",
        "You get the same tokens in every topology. Only what each Mac sees is different.",
    ),
    fact(
        "forwardsees", "ask", "",
        "what can other macs see in forward?|is forward less private?|does the last mac see tokens in forward?|"
        "which mac sees logits in forward?|what does forward show to others?|why is forward less private?|"
        "what does the sampling mac see?",
        "forward,logits,answer",
        "In forward the Mac that samples sees the logits and the token ids of the answer.",
        "Forward shows logits and the answer's tokens to the last Mac, for it samples.",
    ),
    fact(
        "reversesees", "ask", "",
        "what can other macs see in reverse?|is reverse less private?|does another mac see tokens in reverse?|"
        "which mac sees token ids in reverse?|what does reverse show to others?|why is reverse less private?|"
        "what does the embedding mac see?",
        "reverse,all token ids",
        "In reverse the Mac that embeds sees all token ids, those of the prompt too.",
        "Reverse shows all token ids to the Mac that embeds.",
    ),
    fact(
        "layersoption", "what", "--layers|the --layers option|the layers option",
        "can i split a model by hand?|how do i say exactly which mac owns which layers?|"
        "can i choose the layers of a mac?|how do i set the split myself?",
        "--layers,0:9",
        "--layers says who owns what, this Mac first, such as `--layers 0:9,10:19,20:output`.",
        "With --layers you split by hand: 0:9,10:19,20:output gives three Macs their layers.",
    ),
    fact(
        "rowsoption", "what", "--rows|the --rows option|the rows option",
        "how many requests run at the same time?|how many answers can run at once?|"
        "which option sets how many answers run at once?|can more than eight requests run?|"
        "how many rows can a ring have?",
        "--rows,8,64",
        "--rows says how many requests run at the same time: 8 by default, at most 64.",
        "By default 8 requests run at the same time; --rows sets another number up to 64.",
    ),
    fact(
        "busy", "happens", "too many requests come|more requests come than may run|everybody asks at once",
        "what does busy mean?|why was my request refused as busy?|how many requests may wait?|is there a queue?",
        "wait,refused/busy",
        "Some requests wait in a queue. One more than may wait is refused at once as busy.",
        "They wait, eight at most; the next one is refused and told that macluster is busy.",
    ),
    fact(
        "chunkoption", "what", "--chunk and --window|the --window option|--window|the --chunk option",
        "how do i set the size of a chunk?|how many chunks are under way at once?|who chooses chunk and window?|"
        "do i have to set the window?",
        "chunk,window,hops",
        "--chunk sets the tokens of a chunk and --window how many are under way. Else both follow the hops.",
        "Chunk and window follow what the hops show; --chunk and --window set them by hand.",
    ),
    fact(
        "kvbits", "what", "--kv-bits|the --kv-bits option|a kv cache of few bits",
        "can the kv cache be smaller?|how do i save memory of the kv cache?|how do i keep keys and values in 4 bits?|"
        "which option makes the cache smaller?",
        "--kv-bits,4,8",
        "--kv-bits 4 or --kv-bits 8 keeps keys and values in fewer bits, so the cache takes less memory.",
        "With --kv-bits the KV cache is kept in 4 or 8 bits.",
    ),
    fact(
        "verify", "what", "--verify|the --verify option|verifying a load",
        "how do i check that the split is right?|can the split be compared with the whole model?|"
        "which option compares the logits?|what does load --verify compare?",
        "--verify,whole model",
        "--verify compares the logits of the ring with the whole model on the head.",
        "With `macluster load MODEL --verify` the ring is compared with the whole model.",
    ),
    fact(
        "proof", "ask", "",
        "how does a plan prove itself?|what is checked after loading?|does macluster test the split after loading?|"
        "what does proved with 24 tokens mean?|how do i know that the plan works?|what does the head check first?|"
        "is a new plan tested?",
        "every layer,same files,prompt",
        "The head checks that every layer is owned once and that all Macs hold the same files, "
        "and sends a fixed prompt round the ring.",
        "After loading, a plan proves itself: every layer is owned, the same files lie on all Macs, "
        "and a prompt goes round the ring.",
    ),
    fact(
        "samefiles", "ask", "",
        "does every mac need the model's files?|must the model lie on every mac?|"
        "do i have to copy the model to all macs?|does a mac fetch its layers from another mac?|"
        "are the model files sent to the other macs?|where must the files of a model be?|"
        "what if one mac lacks the model's files?|does macluster copy models?",
        "layers,lack",
        "No: only one Mac has to have the model. Loading copies to each other Mac the layers that its disk lacks.",
        "Not all of it: when a model is loaded, each Mac gets the layers that its disk lacks, over sealed links.",
    ),
    fact(
        "planmacs", "ask", "",
        "can i plan for macs that i do not have yet?|how do i plan for other macs?|"
        "what would a split look like with three macs?|can i try a plan before i buy a mac?|"
        "how do i imagine a split?|does plan work without a node?|plan for macs that need not exist?",
        "plan model --macs",
        "`macluster plan MODEL --macs 64,32,16` explains a split for Macs that you do not have yet.",
        "Yes: `macluster plan MODEL --macs 64,32,16` needs no node and no Macs.",
    ),
    fact(
        "parts", "what", "--parts|the --parts option|the parts option of plan",
        "which bytes would each mac read?|how do i see which parts of the files a mac reads?|"
        "can a plan show the bytes of the files?",
        "--parts,bytes,files",
        "`macluster plan MODEL --parts` also lists which bytes of which files every Mac would read.",
        "With --parts a plan shows the bytes that each Mac would read from the files.",
    ),
    fact(
        "peeroption", "what", "--peer|the --peer option|the peer option of the node",
        "how do i give the address of a mac?|can i type the address of another mac?|"
        "how do macs find each other without bonjour?|which option gives a node an address?",
        "--peer,host:port",
        "`macluster node --peer HOST:PORT` says where another Mac listens, also without Bonjour.",
        "With --peer HOST:PORT a node looks for another Mac at that address.",
    ),
    fact(
        "stopoption", "what", "--stop|the --stop option|stop texts|a stop text",
        "can an answer end at a certain text?|how do i end an answer before a word?|which option ends an answer early?|"
        "can i give several stop texts?",
        "--stop,text",
        "--stop TEXT ends the answer before that text; it can be repeated.",
        "With --stop an answer ends where the text would come.",
    ),
    fact(
        "topk", "what", "top-k|--top-k|top k",
        "which option keeps the k most likely tokens?|how do i keep only a few likely tokens?|what does --top-k do?",
        "top-k,most likely",
        "--top-k N leaves out all but the N most likely tokens. 0 turns it off.",
        "With top-k only the k most likely tokens can be chosen.",
    ),
    fact(
        "samplingoptions", "ask", "",
        "which sampling options are there?|which options choose the tokens?|are there penalties?|"
        "list the options for sampling|how can i change the way tokens are chosen?|"
        "is there a repetition penalty?|can i bias a token?|which options does run take for sampling?",
        "--temperature,--top-k,--top-p,--min-p,penalties",
        "There are --temperature, --top-k, --top-p, --min-p, penalties, --logit-bias and --seed.",
        "You can use --temperature, --top-k, --top-p, --min-p, three penalties, --logit-bias and --seed.",
    ),
    fact(
        "logprobs", "what", "--logprobs|the --logprobs option|logprobs",
        "how likely was each token, can i see that?|can i get the probability of a token?|"
        "which option tells how likely a token was?",
        "--logprobs,likely",
        "--logprobs N tells with --json how likely each token was, and the N likeliest.",
        "With --json and --logprobs you see how likely every token was.",
    ),
    fact(
        "runstop", "ask", "",
        "how do i stop macluster run?|how do i cancel an answer in the shell?|what does ctrl+c do in run?|"
        "can i interrupt macluster run?|how do i abort an answer on the command line?|"
        "does ctrl+c in run stop other answers?|cancel a run, how?",
        "ctrl+c,alone",
        "Press Ctrl+C: in `macluster run` it takes back that answer alone.",
        "Ctrl+C ends that answer alone; the model stays loaded.",
    ),
)  # fmt: skip
