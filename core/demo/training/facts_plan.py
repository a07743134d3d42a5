"""Facts: how a model is split, what fits, what is fast, and which topologies there are."""

from __future__ import annotations

from core.demo.training.facts import fact

FACTS = (
    fact(
        "split", "how",
        "does macluster split a model|does macluster split a model over macs|are models split|is a model split|"
        "are the layers divided|does the split work|do you split a model|does macluster divide a model|"
        "are layers shared out between the macs|does macluster distribute the layers",
        "How does macluster split a model?|how does it split models|how is the model split over the macs|"
        "what rule does macluster split a model by?|by what method is a model split?|who gets which layers?|"
        "how does macluster decide who gets which layers?|how is a model spread over several macs?",
        "contiguous,layers,proportion,usable memory,largest remainder",
        "macluster gives every Mac a contiguous run of layers, in proportion to its usable memory. "
        "The largest remainder method rounds the shares to whole layers.",
        "It cuts the model into contiguous layers: each Mac gets a share in proportion to its usable memory, "
        "and spare layers go by the largest remainder.",
        why="A Mac with more usable memory can hold more layers, and contiguous layers mean that each token "
        "crosses only one hop between two Macs.",
    ),
    fact(
        "bymemory", "why",
        "are layers split by memory|is a model split by memory|does memory decide the split|"
        "does a bigger mac get more layers|does memory decide who gets how many layers|"
        "are the layers divided by memory and not by speed",
        "why by memory?|why does the studio get more layers?|why not give every mac the same number of layers?|"
        "why not split the layers evenly?",
        "memory,hold,layers",
        "Because memory decides what a Mac can hold. Layers in proportion to usable memory fill all Macs evenly, "
        "and the largest model fits.",
        "Every layer has to lie in memory. A Mac with twice the usable memory can hold twice the layers, "
        "so the split follows memory.",
    ),
    fact(
        "contiguous", "why",
        "are the layers contiguous|does each mac get neighbouring layers|are layers kept together in one run|"
        "does a mac own a contiguous range",
        "why contiguous?|why not mix the layers over the macs?|could layers be shuffled over the macs?",
        "contiguous/neighbour,hop",
        "Contiguous layers keep the traffic low: a token leaves a Mac only once, so there is one hop between two Macs.",
        "If the layers of a Mac are neighbours, only the last one has to send anything: one hop per Mac and token.",
    ),
    fact(
        "remainder", "what", "the largest remainder|largest remainder|the largest remainder method|hamilton's method",
        "how are layers rounded?|who gets the spare layer?|what happens to the fractions in the split?|"
        "how does macluster round shares to whole layers?",
        "whole,largest,spare/left",
        "Each Mac first gets the whole part of its share. Spare layers then go to the largest fractions: "
        "that is the largest remainder method.",
        "It rounds fair shares to whole layers: everyone gets the whole number, and what is left goes to "
        "the largest remainders.",
        why="Layers cannot be cut in two, and the largest remainder is the fairest simple way to round.",
    ),
    fact(
        "atleastone", "ask", "",
        "does every mac get a layer?|can a mac get no layers?|what is the smallest share of a mac?|"
        "how many layers does a small mac get at least?|will a tiny mac be left out?|"
        "is there a minimum number of layers for a mac?|at least how many layers per mac?",
        "at least one,layer",
        "Every Mac in the plan gets at least one layer.",
        "The split gives each Mac at least one layer, however small its memory is.",
    ),
    fact(
        "ties", "ask", "",
        "what if two macs tie for the last layer?|who wins a tie in the split?|how are ties broken?|"
        "two macs have the same remainder, who gets the layer?|which mac gets the spare layer in a tie?",
        "earlier,tie",
        "A tie goes to the Mac that comes earlier in the order.",
        "In a tie the spare layer goes to the earlier Mac of the plan.",
    ),
    fact(
        "toomany", "happens", "there are more macs than layers|a model has fewer layers than i have macs",
        "can more macs than layers share a model?|what is the most macs that can share a model?|"
        "can 20 macs share 16 layers?",
        "layer,more macs,refuse",
        "Then macluster has to refuse: more Macs than layers cannot share a model, since each needs at least one "
        "layer.",
        "With more Macs than layers the plan is refused, because every Mac must own a layer.",
    ),
    fact(
        "usable", "what", "usable memory|a memory budget|the budget of a mac|the budget",
        "how much memory does macluster use?|how much of my memory will be used?|what share of a mac's memory is used?|"
        "is all of my memory used?",
        "10 gb,memory,own",
        "Usable memory is what a worker may take: all memory of the Mac but 10 GB, which stay for your own work, and "
        "no "
        "more than macOS lets the GPU use.",
        "The budget of a Mac is its memory less 10 GB that are kept back for the person's own work.",
        why="You want to go on working on the Mac while it helps with the model.",
    ),
    fact(
        "setbudget", "ask", "",
        "can i set the budget myself?|how do i limit the memory of a mac?|how do i change the budget of a node?|"
        "which option sets the memory of a node?|can i give macluster less memory?|"
        "how to cap the memory macluster uses|"
        "can the memory budget be changed?",
        "--budget,gb",
        "Yes: start the node with --budget and a number of GB.",
        "The option --budget of `macluster node` sets how many GB the worker may use.",
    ),
    fact(
        "floor", "ask", "",
        "what is the smallest budget?|how much memory does a small mac give?|what budget has a mac with 8 gb?|"
        "can a mac with 8 gb help?|is there a lower limit for the budget?",
        "2 gb",
        "A Mac always offers at least 2 GB, even if the reserve of 10 GB would leave less.",
        "The smallest default budget is 2 GB.",
    ),
    fact(
        "notfit", "happens", "a model does not fit|the model is too large|the model is too big for my macs|"
        "there is not enough memory for a model",
        "what if it does not fit?|can i load a model that is too large?|does macluster load a model that does not fit?",
        "refuse,gb,mac",
        "macluster refuses to load it and says which Mac is short and by how many GB.",
        "The plan is refused before anything is loaded, with the Mac that is short and the missing GB.",
        why="Loading what does not fit would make a Mac swap and become very slow.",
    ),
    fact(
        "fitcount", "ask", "",
        "what counts when macluster checks the fit?|how does macluster know if a model fits?|"
        "what is compared to the budget?|"
        "how is the fit computed?|what does the fit check add up?|how do i know whether a model fits?",
        "weights,kv cache,budget",
        "For each Mac it adds the weights of its layers and their KV cache, and compares the sum with the budget.",
        "A model fits if on every Mac the weights and the KV cache of its layers stay within the budget.",
    ),
    fact(
        "capacity", "ask", "",
        "is splitting a model faster?|does splitting make it faster?|will two macs be twice as fast?|"
        "does a second mac speed up my answers?|is it faster with more macs?|do more macs mean more speed?|"
        "how much faster are three macs?|will it run quicker on several macs?|is a cluster faster than one mac?",
        "capacity,one mac,fastest",
        "No: splitting buys capacity. For one user, a model that fits one Mac is fastest on that Mac.",
        "Splitting buys capacity, not speed for one user: what fits one Mac runs fastest there. "
        "Batching, long prompts, speculation, and tensor over a fast cable are where several Macs are faster.",
        why="The stages of one token run one after the other, and every hop adds time.",
    ),
    fact(
        "whysplit", "why", "should i split a model|would i use several macs|do i need more than one mac|"
        "split a model at all",
        "what is the point of splitting?|what do i gain from several macs?|what does splitting buy me?|"
        "what is the benefit of a cluster?",
        "capacity,memory,model",
        "For capacity: together the Macs have memory for a model that no single one of them can hold.",
        "Several Macs add up their memory. That is capacity for a larger model than one Mac could hold.",
    ),
    fact(
        "faster", "ask", "",
        "when are several macs faster?|where do more macs help with speed?|when does a cluster win?|"
        "in which cases are more macs faster?|what is faster on several macs?|when is splitting faster?",
        "batching,long prompts",
        "Several Macs are faster with batching, with long prompts and with speculation.",
        "Batching, long prompts and speculation: there all stages can work at the same time.",
    ),
    fact(
        "onefits", "happens", "the model fits on one mac|one mac is enough|a model is small enough for one mac",
        "should i split a small model?|is a small model split too?|when should i use only one mac?",
        "one mac,fastest,hop",
        "Then one Mac is the best place for a single user: it is fastest there, for there are no hops.",
        "A model that fits one Mac is fastest on that Mac, since no hop costs any time.",
    ),
    fact(
        "tokentime", "ask", "",
        "what makes up the time of a token?|where does the time of a token go?|how long does one token take?|"
        "why is a token slow?|what adds up to the token time?|how is the token time made up?",
        "sum,stages,hops",
        "For one user the time of a token is the sum of what all stages compute and of all hops.",
        "It is a sum: the computing of all stages, one after the other, and the time of all hops.",
    ),
    fact(
        "network", "ask", "",
        "how much network does a token need?|does it need a fast network?|how many bytes cross a hop?|"
        "is the network the bottleneck?|how big is the traffic per token?|"
        "how much data goes over the network per token?",
        "kilobytes,token,hop",
        "Little: a token carries only a few kilobytes over each hop, since only a hidden state is sent.",
        "A few kilobytes per token and hop. The delay of the network matters more than its bandwidth.",
    ),
    fact(
        "wifi", "ask", "",
        "does macluster work over wi-fi?|can i use wifi?|is wi-fi fast enough?|do i need a cable?|"
        "wifi or cable?|should i connect the macs by cable?|does it run over wireless?|which connection is best?",
        "wi-fi,cable,delay",
        "It works over Wi-Fi, but a cable has less delay: Thunderbolt or Ethernet makes every hop shorter.",
        "Wi-Fi works. A cable is better, because the delay of each hop is added to every token.",
    ),
    fact(
        "topology", "what", "a topology|the topology|topologies",
        "which topologies are there?|what does the topology decide?|what are private, forward, reverse and single?",
        "private,forward,reverse,single,tensor",
        "The topology says who embeds and who samples. There are five: private, forward, reverse, single and tensor.",
        "It says where a token enters and where it is picked: private, forward, reverse, tensor, or single for one "
        "Mac.",
    ),
    fact(
        "private", "what", "the private topology|private topology|topology private|a private plan",
        "which topology is the default?|what is private about it?|which topology hides my tokens?|"
        "do other macs see my tokens?",
        "private,head,no other mac",
        "Private is the default topology: embedding and sampling stay on the head, so no other Mac sees a token or a "
        "logit.",
        "In the private topology the head embeds and samples. No other Mac ever sees a token id, only hidden states.",
        why="Your words should be readable on as few Macs as possible.",
    ),
    fact(
        "forward", "what", "the forward topology|forward topology|topology forward",
        "which topology samples on the last mac?|who samples in forward?|what does forward mean in a plan?",
        "forward,last",
        "In the forward topology the head embeds, and the last stage has the output and samples.",
        "Forward means that the last stage picks the tokens, while the head holds the first layers.",
    ),
    fact(
        "reverse", "what", "the reverse topology|reverse topology|topology reverse",
        "who embeds in reverse?|what does reverse mean in a plan?|which topology embeds on another mac?",
        "reverse,another mac,embed",
        "In the reverse topology another Mac embeds the tokens, and the head has the last layers and the output.",
        "Reverse means that another Mac does the embedding, and that the head samples at the end.",
    ),
    fact(
        "single", "what", "the single topology|single topology|topology single",
        "what is a plan with one mac called?|which topology has no hops?|what does single mean in a plan?",
        "single,one mac",
        "Single is the topology for one Mac: it owns all layers, and there is no hop.",
        "A plan is single if one Mac is enough and holds the whole model.",
    ),
    fact(
        "exact", "ask", "",
        "does splitting change the answer?|are split answers the same?|is the output the same as on one mac?|"
        "does the split cost quality?|will the answer differ when the model is split?|is a split model less accurate?",
        "same,tokens,one",
        "No: at temperature 0 a split model gives the same tokens as the same model in one process.",
        "The answer stays the same. Greedy tokens equal those of one process with mlx-lm, wherever the cut is.",
    ),
    fact(
        "families", "ask", "",
        "which models can macluster run?|what models are supported?|does it run llama?|can i use qwen?|"
        "can i run gemma or mistral?|which architectures work?|what kind of model can i load?",
        "mlx-lm,famil,safetensors",
        "Models of the families that mlx-lm knows, as safetensors on disk, such as Llama, Qwen or Gemma.",
        "macluster runs model families of mlx-lm that lie on your disk as safetensors.",
    ),
    fact(
        "wheremodels", "ask", "",
        "where do i put models?|where does macluster look for models?|where are the models stored?|"
        "in which folder do models lie?|how do i add a model?|where should my model files be?",
        ".macluster/models,folder",
        "Put each model into its own folder below ~/.macluster/models.",
        "macluster looks for a folder in ~/.macluster/models, and in the Hugging Face cache or where "
        "`macluster node --models DIR` says.",
    ),
    fact(
        "howmanymacs", "ask", "",
        "how many macs do i need?|is one mac enough?|can i start with one mac?|can i use macluster with a single mac?|"
        "what is the minimum number of macs?|do i need several macs?",
        "one mac,start/begin",
        "One Mac is enough to start. More Macs add memory for larger models.",
        "You can begin with one Mac and pair others when a model does not fit.",
    ),
    fact(
        "samemac", "ask", "",
        "do the macs have to be the same?|can i mix different macs?|can i mix old and new macs?|"
        "do all macs need the same memory?|can a macbook and a mini work together?|must all macs be equal?",
        "different,memory",
        "No, the Macs may be different. Each one gets layers according to its own memory.",
        "You can mix different Macs; a smaller memory just means fewer layers.",
    ),
    fact(
        "conversationshare", "ask", "",
        "which mac sees my text?|who can read my conversation?|do other macs see my words?|where does my text stay?|"
        "is my question sent to the other macs?|which macs know what i wrote?",
        "text,head,hidden states",
        "Your text stays on the head. The other Macs get only hidden states, which are sealed on the way.",
        "Only the head sees your text; the others compute on hidden states. "
        "Pair only Macs you trust, for hidden states say much about a text.",
    ),
)  # fmt: skip
