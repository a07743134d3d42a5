"""Facts: discovery, pairing, trust and sealing."""

from __future__ import annotations

from core.demo.training.facts import fact

FACTS = (
    fact(
        "bonjour", "what", "bonjour|bonjour discovery|mdns",
        "how do the macs find each other?|how are macs discovered?|do i have to type addresses?|"
        "how does macluster find other macs?|how does it know about my other macs?|what finds the macs?",
        "bonjour,find,address",
        "Bonjour lets Macs find each other on the home network. macluster takes an address from it, and no trust.",
        "The Macs find each other by Bonjour. It only gives a hint for the address, never an identity.",
        why="Anyone on the network can advertise anything, so only a key can prove who a Mac is.",
    ),
    fact(
        "notfound", "happens", "a mac does not show up|my mac is not found|bonjour does not work|"
        "a mac is missing in the list",
        "why is my other mac not listed?|i cannot see my second mac|the mini is not found, why?",
        "same network,node",
        "Check that both Macs are on the same network, that a node runs on each, and that Local Network is allowed.",
        "Both Macs need a running node and the same network. Without Bonjour, `macluster pair HOST:PORT` finds it.",
    ),
    fact(
        "pairing", "what", "pairing|pairing two macs|the pairing of macs",
        "how does pairing work?|how do i pair two macs?|how are macs paired?|what is done when macs pair?|"
        "how do two macs learn to trust each other?",
        "six digits,both,other",
        "Pairing makes two Macs trust each other: both show six digits, and on each you type the digits of the other.",
        "Two Macs are paired by six digits: both of them show some, and you type what the other screen shows.",
        why="Typing the digits proves that no third machine stands between the two Macs.",
    ),
    fact(
        "digits", "what", "the six digits|the pairing code|the pairing digits|the code when pairing",
        "how long is the pairing code?|how many digits has the code?|where do i type the digits?|what code is shown?|"
        "how many numbers do i type when pairing?",
        "six digits,other",
        "The pairing code has six digits. You type the ones that you see on the other Mac's screen.",
        "It is six digits on each screen, and each Mac wants the digits of the other one.",
        why="Six digits are short enough to type, and a guess is right only once in a million.",
    ),
    fact(
        "wrongdigits", "happens", "i type the wrong digits|the digits are wrong|the pairing code does not match|"
        "the digits differ",
        "wrong code, what now?|what if the six digits do not match?|can i try the digits again?",
        "fails,again",
        "Then the pairing fails and both Macs forget it. Start again and compare the digits with care.",
        "The pairing fails, and nothing is trusted. You may try again.",
        why="Different digits can mean that somebody stands between the two Macs.",
    ),
    fact(
        "guess", "ask", "",
        "can someone guess the digits?|how likely is a lucky guess?|are six digits enough?|is six digits secure?|"
        "could an attacker guess the pairing code?|how safe is the pairing code?",
        "million",
        "A guess is right once in a million, and only a few attempts are allowed.",
        "The chance is one in a million for each attempt, and the window closes after three of them.",
    ),
    fact(
        "window", "ask", "",
        "how long is the pairing window open?|how much time do i have to pair?|when does pairing time out?|"
        "how long can i wait with the digits?|for how long may two macs pair?|does the pairing window close by itself?",
        "two minutes",
        "The pairing window stays open for two minutes.",
        "You have two minutes; then the window closes by itself.",
    ),
    fact(
        "roster", "what", "the roster|a roster|roster",
        "where is it written who belongs to my cluster?|how does a mac know the members?|which list names the members?|"
        "what does the roster hold?",
        "roster,signed,members",
        "The roster is the signed list of the Macs that are members. Each change is chained to the one before.",
        "The roster lists the members of your cluster. It is signed, and every new version is chained to the last.",
        why="A signed chain cannot be changed in the middle without everyone noticing.",
    ),
    fact(
        "trustline", "what", "the trust line|the trust badge|the line about trust|trust",
        "what does the trust line mean?|what does trust: paired mean?|what does weakest mean in the trust line?|"
        "what does it say about trust at the top?|how far is my cluster trusted?",
        "trust,weakest,level",
        "The trust line shows the level of the whole cluster and its weakest member. "
        "A cluster is trusted only as far as its weakest Mac.",
        "It names the trust level of the active plan and the weakest Mac in it, because the weakest one decides.",
        why="Hidden states pass through every Mac of the plan, so one weak member weakens them all.",
    ),
    fact(
        "levels", "what", "the trust levels|trust levels|levels of trust|the levels",
        "which trust levels are there?|how many levels of trust are there?|list the trust levels|"
        "name the levels of trust|"
        "from blocked to what do the levels go?",
        "blocked,unpaired,seen,paired",
        "The levels are blocked, unpaired, seen and paired, from the lowest to the highest.",
        "There are four: blocked, unpaired, seen and paired.",
    ),
    fact(
        "blocked", "what", "the level blocked|a blocked mac|blocked",
        "why is a mac blocked?|what does blocked mean?|when does a mac become blocked?|which level is the lowest?",
        "blocked,never/nothing,key/removed",
        "Blocked is the lowest level: the key is wrong or the Mac was removed, and it gets nothing.",
        "A blocked Mac never takes part. Its key does not match, or it was removed from the roster.",
    ),
    fact(
        "unpaired", "what", "the level unpaired|an unpaired mac|unpaired",
        "what does unpaired mean?|why is there a circle beside a mac?|what can an unpaired mac do?|"
        "why does it say not paired?",
        "unpaired,found,prompt",
        "Unpaired means that the Mac was found, but nobody confirmed it. It gets no prompt.",
        "An unpaired Mac was found by Bonjour and nothing more; no prompt goes to it.",
    ),
    fact(
        "seen", "what", "the level seen|a seen mac|seen",
        "what does seen mean as a level?|is seen better than unpaired?|when is a mac called seen?",
        "seen,same key,confirmed",
        "Seen means the same key as before, but never confirmed by a person. It carries no prompts.",
        "A Mac is seen when it shows the same key again, though nobody ever confirmed it by digits.",
    ),
    fact(
        "paired", "what", "the level paired|a paired mac|paired",
        "what does paired mean?|when is a mac paired?|what may a paired mac do?|which level do prompts need?",
        "paired,digits,prompt",
        "Paired means that a person confirmed the Mac by six digits. From this level on it may carry prompts.",
        "A paired Mac was confirmed by its digits and stands in the roster, so prompts may pass through it.",
    ),
    fact(
        "highest", "what", "the highest trust level|the highest level|the level above paired",
        "what is the highest trust level?|which level is above paired?|is a key in the secure enclave worth more?",
        "paired,highest",
        "Paired is the highest level: a person confirmed the Mac by six digits.",
        "Paired is the highest level. None is above it: macOS keeps no key of unsigned Python in the Secure Enclave.",
    ),
    fact(
        "promptlevel", "ask", "",
        "which macs get my prompts?|from which level on do prompts flow?|may an unpaired mac see my prompt?|"
        "what level does a mac need to take part?|when does macluster refuse to send a prompt?|who may carry prompts?",
        "paired,above",
        "Only Macs that are paired or above may carry prompts.",
        "Prompts flow only if every Mac in the plan is paired or above.",
    ),
    fact(
        "sealing", "how",
        "are the links sealed|is the traffic encrypted|is my data protected on the network|does macluster encrypt|"
        "does sealing work|are hops encrypted|is everything that leaves a mac sealed",
        "what encryption does macluster use?|is the traffic encrypted?|which cipher is used?|what does sealed mean?|"
        "what is a sealed link?|can my neighbour read the traffic?|is it encrypted?",
        "tls 1.3,chacha20-poly1305",
        "Every link uses TLS 1.3, and inside it each hop is sealed again with ChaCha20-Poly1305.",
        "Twice: TLS 1.3 outside with pinned keys, and a ChaCha20-Poly1305 seal for every frame inside.",
        why="Hidden states say much about a text, so a fault in one layer of protection is covered by the other.",
    ),
    fact(
        "whytwo", "why", "are there two layers of encryption|is everything sealed twice|is tls not enough|"
        "is there a seal inside tls",
        "why two seals?|isn't tls enough?|what is the second seal for?",
        "fault/mistake,other",
        "So that a fault in one layer is covered by the other.",
        "Two layers are safer: a mistake in one of them does not open the link, for the other still holds.",
    ),
    fact(
        "plaintext", "ask", "",
        "can i turn encryption off?|is there a plaintext mode?|can i run without sealing?|how do i disable encryption?|"
        "is there a mode without security?|can i make it faster without encryption?",
        "no,plaintext",
        "No. There is no plaintext mode, not even for tests or on one machine.",
        "That is not possible: macluster has no plaintext mode at all.",
        why="A switch for plaintext would be found and used one day, by mistake or by an attacker.",
    ),
    fact(
        "identity", "what", "the device key|the identity of a mac|a device key|the identity key",
        "how does a mac prove who it is?|what kind of key does a mac have?|which signature does macluster use?|"
        "how is a mac identified?",
        "key,ed25519",
        "Each Mac has its own device key, an Ed25519 key made at the first start. It proves who the Mac is.",
        "A Mac is known by its Ed25519 device key, never by its name or address.",
    ),
    fact(
        "shortid", "what", "the short id|the id beside a name|the device id",
        "what are the 8 letters after a name?|why is there an id beside each mac?|how long is the short id?",
        "8,id,name",
        "The short id is the first 8 characters of the device id. It stands beside a name, for names can be faked.",
        "Names can be equal, so each name comes with 8 characters of the device id.",
    ),
    fact(
        "pickle", "ask", "",
        "can a model file run code?|are model files safe to load?|can a downloaded model harm my mac?|"
        "does macluster run code from models?|is it dangerous to load a stranger's model?|does it trust remote code?",
        "never,code",
        "macluster never runs code of a model: it reads safetensors only and refuses models that bring their own code.",
        "A model's own code is never run. Only weights in safetensors are read.",
    ),
    fact(
        "malicious", "ask", "",
        "what can a bad paired mac do?|what if one of my paired macs is hacked?|is a paired mac able to read things?|"
        "can a paired mac change the answer?|what does pairing not protect from?",
        "hidden states,layers",
        "A bad paired Mac can read and change the hidden states of its layers. Encryption cannot stop that, so pair "
        "with care.",
        "It sees the hidden states of its own layers and could alter them. Pair only Macs that are yours.",
    ),
    fact(
        "cloud", "ask", "",
        "does my data leave my home?|is anything sent to the cloud?|does macluster use the internet?|is it private?|"
        "does macluster phone home?|is my data uploaded anywhere?|do i need an account?",
        "no cloud/nothing,home,macs",
        "Nothing is sent to a cloud: the model runs on the Macs in your home.",
        "It is private. There is no cloud and no account; all work is done by the Macs in your home.",
    ),
    fact(
        "offline", "ask", "",
        "does it work offline?|do i need the internet?|can i use macluster without internet?|"
        "does it run without a connection?|"
        "will it work on a plane?|is an internet connection needed?",
        "offline/without internet,home network/models",
        "Yes, it works offline. The Macs only need the home network and models that are on disk.",
        "It runs without internet: models on disk and a home network are enough.",
    ),
    fact(
        "escape", "ask", "",
        "can a model mess up my terminal?|is model text cleaned?|what about escape codes in an answer?|"
        "can an answer contain control characters?|does macluster filter terminal codes?",
        "cleaned,control",
        "Text from a model or a peer is cleaned of control characters before the terminal sees it.",
        "All foreign text is cleaned first, so control codes never reach your terminal.",
    ),
    fact(
        "revoked", "happens", "a mac is stolen|a mac is lost or sold|i no longer trust a mac|"
        "a mac is removed from the roster",
        "how is a removed mac treated?|what about a stolen mac?|my macbook was stolen, what about macluster?",
        "roster,blocked",
        "Revoke it by `macluster trust revoke MAC`: off the roster it is blocked, and no link to it opens any more.",
        "Take it off the roster with `macluster trust revoke MAC`. Then it is blocked, and every member refuses it.",
    ),
    fact(
        "admin", "what", "an admin|admins|the role admin",
        "who may change the roster?|what may an admin do?|how does a mac become an admin?|who signs the roster?",
        "admin,roster",
        "An admin is a Mac that may sign changes of the roster, such as a new member.",
        "Admins change the roster; `macluster trust promote MAC` makes another Mac an admin.",
    ),
    fact(
        "recoverywords", "what", "the recovery words|the 24 words|recovery words",
        "what are the 24 words for?|what if the only admin is lost?|how do i get an admin back?|"
        "should i write the 24 words down?|what brings back a cluster without an admin?",
        "24 words,admin",
        "24 words bring back a cluster whose only admin is lost. They are shown once: write them down.",
        "The recovery words are 24 words that make another Mac an admin when the last one is lost.",
    ),
    fact(
        "simulatedtrust", "ask", "",
        "are the demo macs really paired?|do the simulated macs encrypt?|is the demo sealed too?|"
        "does the demo use real pairing?|is there security in the demo?",
        "real,paired,sealed",
        "Yes: the simulated Macs have real keys of their own, are paired by real digits, and their links are sealed.",
        "The demo takes no short cut. Its Macs are paired in the real way, and all links between them are sealed.",
    ),
)  # fmt: skip
