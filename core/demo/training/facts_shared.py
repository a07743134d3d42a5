"""Facts: a part of every layer for each Mac, how layers are balanced, and what travels on the wire."""

from __future__ import annotations

from core.demo.training.facts import fact

FACTS = (
    fact(
        "tensor", "what", "tensor parallelism|the tensor topology|tensor|a rank",
        "can all macs compute at the same time?|what is a part of every layer?|does macluster know tensor parallel?",
        "part of every layer,same time",
        "In the topology tensor each Mac holds a part of every layer, and all Macs compute at the same time.",
        "Tensor parallelism gives each Mac a part of every layer. All compute at the same time and add up their parts.",
        why="So that one answer can be faster over a very fast cable.",
    ),
    fact(
        "parallelismoption", "what", "--parallelism|the --parallelism option|tp and pp",
        "how do i turn tensor parallelism on?|which option chooses tp?|what do auto, tp, pp and single mean?",
        "tp,pp,auto",
        "--parallelism takes auto, tp, pp or single: tp is a part of every layer for each Mac, pp layers of its own.",
        "With --parallelism tp all Macs share every layer, with pp each has its own layers; auto decides.",
    ),
    fact(
        "tensorfast", "ask", "",
        "when is tensor parallelism faster?|does tp pay off over wi-fi?|is tensor worth it on my network?",
        "fast cable,wi-fi",
        "Only over a very fast cable such as Thunderbolt 5; over Wi-Fi tensor is slower than one Mac.",
        "Tensor pays off over a fast cable, not over Wi-Fi: twice a layer all Macs wait for each other.",
    ),
    fact(
        "tensorsees", "ask", "",
        "what do other macs see in tensor?|is tensor less private?|does every rank see my words?",
        "every mac/all macs,token ids",
        "In tensor every Mac sees all token ids, for each of them embeds. Only the head has the logits.",
        "Tensor is less private: all Macs get the token ids of your words.",
    ),
    fact(
        "rdma", "what", "--rdma|rdma|the --rdma option",
        "is rdma encrypted?|can thunderbolt be used without encryption?|what is the fastest way to add up parts?",
        "--rdma,not encrypted/without encryption",
        "--rdma lets ranks add up over a Thunderbolt 5 cable. It is not encrypted on the cable.",
        "With --rdma parts go over Thunderbolt 5 without encryption on the cable; the trust badge says so.",
    ),
    fact(
        "wireoption", "what", "--wire|the --wire option|the wire type",
        "can hidden states be sent in fewer bits?|how do i send less data per token?|what does --wire int8 do?",
        "--wire,bfloat16,int8",
        "--wire bfloat16 or --wire int8 sends hidden states in fewer bits; answers may then differ a little.",
        "With --wire you choose float32, bfloat16 or int8 for what travels between the Macs.",
    ),
    fact(
        "balanceoption", "what", "--balance|the --balance option|balancing by speed",
        "can layers be divided by speed?|how do i give the faster mac more layers?|does a slow mac hold the others up?",
        "--balance,speed",
        "--balance speed divides the layers by how fast each Mac really is, within its memory.",
        "With --balance speed a faster Mac gets more layers, as past answers measured it.",
        why="The slowest Mac decides how long a token takes.",
    ),
    fact(
        "replaycheck", "what", "--replay-check|the --replay-check option",
        "how do i know that an answer after a loss is exact?|which option compares logits after a lost mac?",
        "--replay-check,logits,first time",
        "--replay-check compares the logits of what is read again behind a lost Mac with those of the first time.",
        "With --replay-check the log says whether logits differ from the first time when text is read again.",
    ),
    fact(
        "mirror", "what", "--mirror|the --mirror option|mirroring keys and values",
        "can the head keep a copy of all caches?|how do i make recovery quicker?|must all be read again after a loss?",
        "--mirror,copy",
        "--mirror on lets the head keep a copy of all keys and values, so little is read again after a loss.",
        "With --mirror on the head has a copy of the caches: after a fault only the last tokens are read again.",
    ),
    fact(
        "draft", "what", "--draft|the --draft option|a draft model",
        "can a smaller model help to guess?|how do i use a draft model?|what speeds up one person's answers?|"
        "which option takes a small model that guesses ahead?|can two models work together?|"
        "does a draft model change the answer?|what must a draft model have in common with the big one?|"
        "guess tokens with a little model|how can a small model make a large one faster?|what does --draft do?",
        "--draft,guess",
        "--draft MODEL lets a smaller model of the same tokenizer guess ahead on the head; the answer stays the same.",
        "With --draft a small model guesses tokens that the large one checks, so one person's answer comes faster.",
    ),
    fact(
        "prefillmac", "what", "--prefill|the --prefill option|a mac that reads the prompts", "",
        "--prefill,prompts",
        "With --prefill MAC a fast Mac beside the ring reads long prompts and hands the keys and values on.",
        "--prefill MAC lets that Mac read prompts of 256 tokens or more for the ring; auto takes a quicker one.",
    ),
    fact(
        "draftroom", "ask", "",
        "does a draft model take memory?|on which mac does the draft lie?|how much room does a draft need?",
        "draft,head,gb",
        "The draft lies on the head, beside its layers; the plan says how many GB it takes there.",
        "A draft takes memory of the head alone: the plan names its GB, and splits the large model over what is left.",
    ),
    fact(
        "withoutoption", "what", "--without|the --without option",
        "how do i leave a mac out by command?|can i load without one of my macs?",
        "--without",
        "`macluster load MODEL --without MAC` leaves that Mac out of the plan.",
        "--without MAC plans without that Mac, also for plan and run.",
    ),
    fact(
        "awake", "ask", "",
        "can my mac fall asleep while it holds a model?|does macluster keep the mac awake?|"
        "how do i let the mac sleep?",
        "awake",
        "A Mac stays awake while it holds a model or copies one; `awake = \"never\"` in config.toml lets it sleep.",
        "It is kept awake while a model is loaded. `awake` in config.toml changes that.",
    ),
    fact(
        "paths", "ask", "",
        "which network does a hop take?|does it use thunderbolt if there is a cable?|"
        "what if i plug in a cable during an answer?|wi-fi and ethernet, which one is used?",
        "best,thunderbolt",
        "Each hop takes the best network between the two Macs: Thunderbolt, Ethernet, Wi-Fi, then a VPN.",
        "The best one: Thunderbolt before Ethernet before Wi-Fi. A hop moves when a cable is plugged in or pulled.",
    ),
)  # fmt: skip
