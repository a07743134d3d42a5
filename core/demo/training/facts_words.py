"""Facts: the words of macluster and of language models."""

from __future__ import annotations

from core.demo.training.facts import fact

FACTS = (
    fact(
        "macluster", "what", "macluster|this program|this app|this tool",
        "what does macluster do?|what is this thing?|what is macluster good for?|what can macluster do for me|"
        "what am i looking at?|in a nutshell, what does this program do?",
        "macs,one,model",
        "macluster turns the Macs in a home into one private machine for language models. "
        "It splits the layers of a model over them and shows every hop.",
        "It joins the Macs of your home into one private machine, so that together they can run a language model "
        "that no single Mac could hold.",
        why="One Mac often has too little memory for a large model; several Macs together have enough.",
    ),
    fact(
        "mac", "what", "a peer|a mac in macluster|the word peer|peers",
        "what does macluster call another machine?|is a peer the same as a mac?|who counts as a peer?",
        "mac,machine",
        "A Mac, or peer, is one machine in the home that runs a node of macluster.",
        "A peer is another Mac: one machine that runs a node and may own layers of the model.",
    ),
    fact(
        "node", "what", "a node|the node|the word node",
        "what does the node do?|what runs on every mac?|which process looks after the links?|"
        "what is the service on each mac called?",
        "node,service",
        "A node is the service that macluster runs on each Mac. It owns identity, discovery, links and plans, "
        "and it watches over the worker.",
        "The node is the per-Mac service: it finds and pairs other Macs, makes plans and starts the worker. "
        "It does no model arithmetic itself.",
        why="The node stays free of model arithmetic so that it can answer quickly while the worker computes.",
    ),
    fact(
        "worker", "what", "a worker|the worker|the worker process",
        "what does the worker do?|which process owns the layers?|who computes the layers?|"
        "what process holds the layers on a mac?",
        "worker,process,layers",
        "A worker is the process on a Mac that owns layers of the model and computes them. There is one worker per "
        "Mac.",
        "The worker is the process that holds a Mac's layers and their KV cache, and computes them for every token.",
        why="A process of its own can fail or be stopped without taking the node along.",
    ),
    fact(
        "stage", "what", "a stage|the word stage|stages",
        "what is one part of the split called?|what does a stage own?|is a stage a mac?",
        "stage,contiguous,layers",
        "A stage is a contiguous range of layers that one Mac owns, in the order of the ring.",
        "A stage is one Mac's share of the model: a contiguous run of layers, placed in the order of the ring.",
    ),
    fact(
        "head", "what", "the head|the head mac|a head in macluster",
        "which mac is the head?|what does the head do?|who owns the token log?|where is the model loaded from?",
        "head,mac,loaded,token log",
        "The head is the Mac where the user loaded the model. It owns the token log, and it picks each next token.",
        "The head is the Mac on which you loaded the model; the ring starts and ends there, and it keeps the token "
        "log.",
        why="Your words start and end on the head, so its token log is the one that counts.",
    ),
    fact(
        "hop", "what", "a hop|hop|the word hop|hops",
        "what does a hop do?|what is the link between two stages called?|what travels over a hop?|"
        "what are the hops in the third pane?",
        "hop,link,neighbouring,stages",
        "A hop is one directed link between neighbouring stages. Hidden states travel over it from one Mac to the "
        "next.",
        "A hop is the directed link from one stage to the next: the two neighbouring stages lie on two Macs, "
        "and every token crosses all hops.",
        why="Each stage needs what the stage before it computed, so something has to cross the network.",
    ),
    fact(
        "lane", "what", "a lane|lane|lanes|the word lane",
        "what is a batch of rows called?|what travels round the ring together?|what does a lane hold?",
        "lane,batch,rows",
        "A lane is a batch of rows that travels round the ring together.",
        "A lane is a batch: its rows go round the ring side by side, so that one trip serves several requests.",
        why="With several lanes on the way, no stage has to wait for the ring.",
    ),
    fact(
        "row", "what", "a row|row|rows in a lane|the word row",
        "what is one request inside a lane called?|what becomes of a request in a lane?|is a row a request?",
        "row,request,lane",
        "A row is one request inside a lane.",
        "A row stands for one request: it joins a lane and travels round the ring with the other rows.",
    ),
    fact(
        "plan", "what", "a plan|the plan|the word plan",
        "what does a plan say?|who makes the plan?|where is it written who owns which layers?|what is in a plan?",
        "plan,layer,order",
        "A plan says which Mac owns which layers, and in which order the Macs stand in the ring.",
        "The plan names the owner of every layer and the order of the stages. It is made once, on the head.",
        why="One plan made on one Mac means that no two Macs can disagree about the split.",
    ),
    fact(
        "ring", "what", "the ring|a ring in macluster|the ring of macs",
        "what shape do the links form?|where does the ring start and end?|why is it called a ring?",
        "ring,stage,head",
        "The ring is the round trip of every token: from the head through each stage and back to the head.",
        "The stages form a ring that starts and ends at the head, and each token goes once round it.",
    ),
    fact(
        "layer", "what", "a layer|layers|a model layer|a transformer layer",
        "what is a model made of?|what are layers in a language model?|what does one layer do?",
        "layer,step",
        "A layer is one step of a language model: it takes hidden states, works on them and hands them to the next "
        "layer.",
        "A model is a stack of layers, and each layer is one step of the computation, applied in order.",
    ),
    fact(
        "hidden", "what", "a hidden state|hidden states|an activation|activations",
        "what crosses the wire for each token?|what is sent between the macs?|what do the macs send each other?|"
        "which data goes over the network for a token?",
        "hidden state,numbers,layer",
        "A hidden state is the row of numbers that one layer hands to the next. "
        "Between Macs, these hidden states are what crosses the wire.",
        "Between two Macs only hidden states travel: rows of numbers that come out of one layer and go into the next.",
        why="A row of numbers is small next to the weights, so it can cross the network for every token.",
    ),
    fact(
        "token", "what", "a token|tokens|the word token",
        "what are tokens in a language model?|is a token a word?|how long is a token?",
        "token,piece,text",
        "A token is a small piece of text, often a word or part of one. A model reads and writes tokens one after "
        "another.",
        "A token is a piece of text that has a number. The model writes its answer one token at a time.",
    ),
    fact(
        "tokenizer", "what", "a tokenizer|the tokenizer",
        "what turns text into tokens?|where does the tokenizer run?|which process holds the tokenizer?",
        "tokenizer,text,tokens,node",
        "A tokenizer turns text into tokens and tokens back into text. In macluster it lives in the node, not in the "
        "worker.",
        "The tokenizer cuts text into tokens. It belongs to the node on the head; workers only see numbers.",
    ),
    fact(
        "embedding", "what", "an embedding|the embedding|the embedding table",
        "which part turns token ids into numbers?|where is the embedding kept?|who owns the embedding?",
        "embedding,token,head",
        "The embedding turns each token id into a row of numbers. By default it stays on the head.",
        "The embedding is the table that gives every token its first hidden state, and the head owns it by default.",
        why="If the head embeds, no other Mac ever sees a token id.",
    ),
    fact(
        "logits", "what", "a logit|logits|the output head of a model",
        "what comes out of the last step of a model?|do logits leave the head?|what does the sampler read?",
        "logit,score,token",
        "Logits are the scores that a model gives to every possible next token. The sampler picks from them.",
        "A logit is the score of one possible next token. In the private topology logits never leave the head.",
    ),
    fact(
        "sampler", "what", "sampling|a sampler|the sampler",
        "who picks the next token?|where does sampling happen?|how is the next token chosen?",
        "sampl,next token,head",
        "Sampling picks the next token from the scores of the model. It happens on the head by default.",
        "The sampler chooses the next token from the model's scores, and by default it runs on the head.",
    ),
    fact(
        "temperature", "what", "temperature|the temperature setting|temperature in sampling",
        "what does --temperature do?|what does temperature 0 mean?|how do i make answers less random?",
        "temperature,0,likely",
        "Temperature says how bold the choice of the next token is. At 0 the most likely token is always taken.",
        "A temperature of 0 takes the most likely token each time; a higher temperature lets less likely ones through.",
    ),
    fact(
        "topp", "what", "top-p|nucleus sampling|top p",
        "what does --top-p do?|what is the top-p option for?|how does nucleus sampling work?",
        "top-p,likely,tokens",
        "Top-p keeps only the most likely tokens that together reach the share p, and picks among those.",
        "With top-p the choice is among the most likely tokens only, as many as add up to p. 0 turns it off.",
    ),
    fact(
        "seed", "what", "a seed|the seed option|sampling with a seed",
        "what does --seed do?|how do i get the same answer twice?|how can sampling be made repeatable?",
        "seed,repeat/same",
        "A seed makes sampling repeatable: the same seed and the same question give the same answer.",
        "With --seed the random choices repeat, so you get the same answer again.",
    ),
    fact(
        "kv", "what", "the kv cache|a kv cache|kv cache|kv",
        "what does kv stand for?|what is kept for every token?|why does context cost memory?|"
        "what does kv in the plan mean?",
        "keys,values,tokens",
        "The KV cache holds the keys and values of all tokens so far, so that they need not be computed again. "
        "It grows with the context.",
        "KV means keys and values: what attention keeps of earlier tokens. Each worker holds the cache of its own "
        "layers.",
        why="Without it every new token would mean computing the whole text again.",
    ),
    fact(
        "prefill", "what", "prefill|the prefill phase|the word prefill",
        "what happens before the first token?|what is the first phase of an answer?|"
        "what is being done while the prompt is read?",
        "prefill,prompt,before",
        "Prefill is the first phase: the model reads the whole prompt before it writes the first token.",
        "During prefill the prompt goes through all layers, in chunks, before the first token of the answer appears.",
        why="The model has to know the whole prompt before it can say anything about it.",
    ),
    fact(
        "decode", "what", "decode|decoding|the decode phase",
        "what comes after prefill?|which phase writes the answer?|how are tokens written?",
        "decode/decoding,one token",
        "Decode is the phase after prefill: the model writes the answer, one token at a time.",
        "In decoding, one token after the other is made, and each one goes once round the ring.",
        why="Each token depends on the one before it, so they cannot all be made at once.",
    ),
    fact(
        "chunk", "what", "a chunk|a prefill chunk|chunks|chunked prefill",
        "how large is a chunk?|how many tokens are in a prefill chunk?|into what pieces is a prompt cut?",
        "chunk,512",
        "A chunk is a piece of a long prompt: 512 tokens at first, then as many as the hops allow.",
        "Long prompts are cut into chunks, of 512 tokens at first, so that all Macs can read at the same time.",
        why="While one stage works on a chunk, the stage before it can already take the next one.",
    ),
    fact(
        "context", "what", "the context|context length|the context window",
        "how many tokens of context are there?|how long may a conversation be?|what is the default context?",
        "context,4096,tokens",
        "The context is all text that the model can look back on. macluster plans for 4096 tokens by default.",
        "Context length is how many tokens fit into one conversation; the default is 4096, and --context changes it.",
    ),
    fact(
        "prompt", "what", "a prompt|the prompt|the word prompt",
        "what do you call the text i send?|what is sent to the model?|is my question the prompt?",
        "prompt,text,model",
        "A prompt is the text that you give the model: your question, with the conversation before it.",
        "The prompt is the text the model reads before it answers.",
    ),
    fact(
        "template", "what", "a chat template|the chat template",
        "how does a conversation become one text?|where is the chat template rendered?|is a chat template dangerous?",
        "template,conversation,process",
        "A chat template turns a conversation into the one text that a model reads. "
        "macluster renders it in a child process that can be stopped.",
        "The chat template marks who said what in a conversation. It comes with the model, "
        "so it is rendered in a separate process.",
        why="A template comes from a stranger's file and could run forever; a separate process can be stopped.",
    ),
    fact(
        "quantised", "what", "quantisation|a quantised model|quantization|a 4-bit model|8-bit weights",
        "what does 4-bit mean?|why are some models smaller than others?|how can weights be made smaller?",
        "weights,bits,memory",
        "Quantisation stores the weights in fewer bits, for example 4 instead of 16, so the model needs less memory.",
        "A quantised model keeps its weights in few bits. It takes much less memory and loses only a little quality.",
        why="Fewer bits mean fewer bytes to hold and to read for every token.",
    ),
    fact(
        "weights", "what", "weights|the weights|model weights",
        "what is in the big model files?|what has a model learned?|what do the safetensors hold?",
        "weights,numbers,learned",
        "Weights are the numbers that a model learned in training. Each Mac reads only the weights of its own layers.",
        "The weights are the learned numbers inside the layers, and they take most of the memory.",
    ),
    fact(
        "safetensors", "what", "safetensors|a safetensors file|the safetensors format",
        "which file format do models need?|what model files are accepted?|can i load a pickle file?",
        "safetensors,weights,code",
        "Safetensors is a plain file format for weights. macluster reads nothing else, since it can hold no code.",
        "A safetensors file holds weights and no code, so opening it runs nothing. It is the only format macluster "
        "loads.",
        why="Other formats can hide code that runs when the file is opened.",
    ),
    fact(
        "mlx", "what", "mlx|the mlx library",
        "which library does the arithmetic?|what is under the hood?|does macluster use mlx?",
        "mlx,apple",
        "MLX is Apple's array library for its own chips. The workers of macluster compute with MLX.",
        "MLX does the arithmetic: it is an array library made by Apple, and every worker uses it.",
    ),
    fact(
        "mlxlm", "what", "mlx-lm|mlx_lm|the mlx-lm package",
        "where do the model families come from?|which package knows the model architectures?|"
        "does macluster fork mlx-lm?",
        "mlx-lm,famil",
        "mlx-lm is the package that knows the model families for MLX. macluster runs slices of its models and forks "
        "none.",
        "The model families come from mlx-lm; macluster uses them as they are and cuts them into stages.",
    ),
    fact(
        "slice", "what", "a slice|a slice of a model|slices",
        "does every mac load the whole model?|which weights does a mac read?|is the whole model on every mac?",
        "layers,own,read",
        "A slice is the part of a model that one Mac runs. Only the weights of its own layers are read into memory.",
        "No Mac loads the whole model: each one reads only its own layers, its slice.",
        why="Reading the rest would waste the memory that the split is meant to save.",
    ),
    fact(
        "tokenlog", "what", "the token log|a token log",
        "where are the tokens of an answer kept?|when is a token shown?|what does the head write down?",
        "token,log,head",
        "The token log is the head's list of every token of an answer. A token is shown only after it is in the log.",
        "The head keeps a token log. It is the truth about an answer: first a token is logged, then it is shown.",
        why="The KV cache can be rebuilt from the log, so nothing that you saw can be lost.",
    ),
    fact(
        "frame", "what", "a frame|frames|a frame on the wire",
        "how long is the header of a frame?|how does data cross the wire?|what is the unit of sending?",
        "frame,48,header",
        "A frame is one message on a link: a header of 48 bytes and a sealed body.",
        "Data crosses a link in frames. Each frame has a 48-byte header, and its body is sealed.",
    ),
    fact(
        "batching", "what", "batching|a batch|continuous batching",
        "how do several people use one model?|what helps when many requests come?|"
        "what is gained by computing requests together?",
        "several/many,requests,together",
        "Batching means that several requests are computed together, so one trip round the ring serves them all.",
        "With batching, many requests share a trip round the ring together, and the Macs give more tokens per second "
        "in all.",
    ),
    fact(
        "speculation", "what", "speculation|speculative decoding|prompt lookup",
        "how can one user fill the pipeline?|what does guessing tokens bring?|what is verified in speculation?",
        "guess,tokens,check",
        "Speculation guesses several tokens from what the text said before, and the model checks them in one trip "
        "round the ring.",
        "In speculative decoding some next tokens are guessed cheaply, and the model checks all of them at once.",
    ),
    fact(
        "pipeline", "what", "pipeline parallelism|pipeline parallel|a pipeline of macs",
        "what kind of parallelism does macluster use?|is it pipeline or tensor parallel?|"
        "how do the macs work one after another?",
        "layers,after,mac",
        "Pipeline parallelism gives each Mac a run of layers, and the Macs work one after the other on a token.",
        "By default macluster works as a pipeline: each Mac has some layers, and the data goes from one Mac to the "
        "next, one after the other.",
    ),
    fact(
        "ttft", "what", "first token time|time to first token|ttft",
        "why does the first token take so long?|what does first token mean under an answer?|"
        "how long until the answer starts?",
        "first token,prompt",
        "Time to first token is the wait until an answer begins. It is mostly prefill: the whole prompt is read first.",
        "It is the time from sending until the first token. The prompt must be read before that, so long prompts "
        "wait longer.",
    ),
    fact(
        "toks", "what", "tokens per second|tok/s|the tok/s figure",
        "how is speed measured?|what does the speed under an answer mean?|what unit is the speed in?",
        "tokens,second",
        "Tokens per second says how many tokens the model writes each second. It stands under every answer.",
        "Tok/s is the speed of an answer: tokens written per second.",
    ),
    fact(
        "unified", "what", "unified memory|the memory of a mac",
        "why are macs good for language models?|do macs have separate gpu memory?|"
        "does the gpu of a mac have its own memory?",
        "memory,gpu,share",
        "On Apple chips the processor and the GPU share one memory, so a model can use nearly all of it.",
        "Unified memory means that processor and GPU share the same memory. A Mac with much memory can hold a large "
        "model.",
    ),
)  # fmt: skip
