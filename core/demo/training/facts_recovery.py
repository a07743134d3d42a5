"""Facts: what happens when a Mac, a worker or a link is lost, and how the answer goes on."""

from __future__ import annotations

from core.demo.training.facts import fact

FACTS = (
    fact(
        "macdies", "happens",
        "a mac dies|one mac dies|a mac crashes|a mac is switched off|a mac goes to sleep|"
        "i close the lid of one mac|a mac drops out|one of the macs disappears|a mac loses power",
        "can an answer survive a dead mac?|is my answer lost when a mac fails?|mac died now what|"
        "what does macluster do when a mac is lost?|does the answer end when a mac dies?|"
        "will the answer stop if i switch off a mac?|must i ask again when a mac has died?",
        "goes on,macs that are left",
        "The answer goes on over the Macs that are left, if the model fits them. What was shown never changes.",
        "macluster splits the model over the Macs that are left, and the answer goes on where it was. "
        "If they cannot hold it, everything is kept and waits.",
        why="The head has every token in its log, and the other Macs have the model's files on their own disks.",
    ),
    fact(
        "reread", "how",
        "does recovery work|does an answer go on after a mac died|does macluster go on without a mac|"
        "is an answer rescued|are the layers of a dead mac replaced|do the other macs take over",
        "what is done after a mac was lost?|which steps does recovery take?|what is read again after a mac died?|"
        "do the other macs read my text again?|who takes over the layers of a dead mac?|"
        "where do the layers of a lost mac go?",
        "layers,again",
        "Recovery: the Macs that are left load the missing layers, read the prompt and what is written again, and go "
        "on.",
        "The missing layers are loaded by the other Macs. They read the prompt and the text so far again, "
        "and the answer goes on.",
        why="The KV cache of the lost layers is gone, and only reading again brings it back.",
    ),
    fact(
        "shownstays", "ask", "",
        "can shown text change after a mac died?|does recovery change what was written?|do shown tokens ever change?|"
        "is any text taken back when a mac dies?|will the text that i have read stay the same?|"
        "do i lose words when a mac dies?|can a token that was shown change?|is the shown text safe?|"
        "does it write the same text twice after a loss?",
        "shown,never changes",
        "No: what was shown never changes. Only new text comes behind it.",
        "A token that was shown never changes, whatever happens to a Mac.",
    ),
    fact(
        "notenough", "happens",
        "the macs that are left cannot hold the model|the model does not fit the macs that are left|"
        "the other macs are too small after a loss|nobody can take over the layers of a lost mac",
        "which choices do i have when a mac is lost?|what may i choose when the others are too small?|"
        "can i wait for a lost mac?|can i save an answer when a mac is lost?|"
        "what if there is not enough memory left after a mac died?|why does the answer wait for a mac?",
        "kept,wait,save,stop",
        "Then everything is kept. You may wait for the Mac, save, stop, or load a smaller model.",
        "The answer is kept and waits for the Mac. You can wait too, save it, stop, or load a smaller model.",
        why="A model that does not fit would make the other Macs swap and become very slow.",
    ),
    fact(
        "macback", "happens",
        "a lost mac comes back|a dead mac returns|the missing mac is there again|a lost mac is switched on again",
        "does the answer go on when the mac is back?|what becomes of a mac that comes back?|"
        "what about a lost mac that returns?|can a lost mac take part again?",
        "waits,goes on",
        "An answer that waits for it goes on by itself.",
        "If the answer waits for that Mac, it goes on by itself. Else the Mac takes part in the next load.",
    ),
    fact(
        "afterloss", "ask", "",
        "how do i go on after a mac died?|a mac is gone, what do i do now?|how do i recover from a lost mac?|"
        "how do i continue without the lost mac?|how do i get going again after a mac failed?|"
        "do i have to do anything when a mac dies?|must i load the model again after a loss?|"
        "what is my part when a mac is lost?|a mac failed, what should i press?",
        "nothing/not,by itself",
        "You need not do anything: if the Macs that are left can hold the model, the answer goes on by itself.",
        "Nothing, as long as the other Macs can hold the model: the answer goes on by itself.",
    ),
    fact(
        "reload", "happens", "the plan is broken|it says that the plan is broken|the split is broken",
        "what should i do when the plan is broken?|how do i repair a broken plan?|what to do about a broken plan?|"
        "how do i mend the plan?|how do i get a new plan?",
        "ctrl+o,load,left",
        "Press Ctrl+O and load the model again: the new plan uses the Macs that are left.",
        "Load the model again with Ctrl+O. macluster then splits it over the Macs that are left.",
    ),
    fact(
        "rescuetime", "ask", "",
        "how long does recovery take?|when does the answer go on after a loss?|how long is the pause when a mac dies?|"
        "how many seconds does a recovery need?|what costs time after a mac died?|is recovery fast?|"
        "how long do i wait after a mac was lost?|why is there a pause after a mac died?",
        "layers,again,seconds",
        "The missing layers must load and the text is read again; the screen counts the seconds that are left.",
        "As long as loading the layers and reading the text again: the seconds that are left are on the screen.",
    ),
    fact(
        "workerdies", "happens",
        "a worker dies|a worker crashes|a worker is killed|the worker process ends|a worker fails",
        "who starts a dead worker again?|is a crashed worker started again?|does a worker come back?|a worker died|"
        "does an answer survive the crash of a worker?",
        "second worker,goes on",
        "A second worker stands ready and takes the place of a worker that dies. It loads the layers, and the answer "
        "goes on.",
        "The second worker takes its place at once, the text is read again, and the answer goes on.",
        why="A worker holds only what can be built again; the head's token log is what counts.",
    ),
    fact(
        "headdies", "happens",
        "the head dies|the head crashes|the node of the head is killed|the head mac is switched off|"
        "the mac where i loaded the model crashes|my own mac crashes",
        "what if the head itself is lost?|does an answer survive a crash of the head?|"
        "is my chat lost when my own mac crashes?|what remains when the head's program dies?|"
        "what if the mac that leads fails?",
        "disk,last second,run model --continue",
        "The conversation is on its disk up to the last second. Then `macluster run MODEL --continue` goes on.",
        "The head keeps it on disk up to the last second: start it again and type `macluster run MODEL --continue`.",
        why="The token log is written to disk every second, so at most the last second is missing.",
    ),
    fact(
        "continuing", "command",
        "go on with an interrupted answer|continue an answer after a crash|finish an unfinished answer|"
        "continue an interrupted answer|take up an answer that was cut off by a crash",
        "can i finish an answer after a crash?|how do i continue after a crash?|how do i resume an answer?|"
        "is there a command that continues an answer?|continue command?",
        "macluster run model --continue",
        "Type `macluster run MODEL --continue` to go on with an interrupted answer.",
        "The command is `macluster run MODEL --continue`: it prints the text so far and goes on.",
        "`macluster run MODEL --continue` does that.",
    ),
    fact(
        "unfinished", "ask", "",
        "how do i see unfinished answers?|where are unfinished answers listed?|is an answer still unfinished?|"
        "which command shows unfinished answers?|how many answers are unfinished?|"
        "where do i see what was interrupted?|are there interrupted answers left?",
        "macluster status,unfinished",
        "`macluster status` says how many unfinished answers there are, and how to go on.",
        "Look at `macluster status`: it counts the unfinished answers.",
    ),
    fact(
        "nminus", "what", "n-1 safe|an n-1 safe plan|n-1 safety|a plan that is n-1 safe",
        "when is a plan n-1 safe?|what does n-1 mean in a plan?|which plans are n-1 safe?|what is n minus one safe?",
        "n-1 safe,lose,others",
        "A plan is N-1 safe if it can lose any one Mac but the head: the others can hold the model.",
        "N-1 safe means that the plan may lose any one Mac but the head, because the others could hold the model.",
        why="It is better to know before an answer whether a Mac may fail.",
    ),
    fact(
        "cannotlose", "ask", "",
        "which mac can my plan not lose?|can my plan lose a mac?|how do i know whether i may switch off a mac?|"
        "does the plan say which mac it needs?|which macs are indispensable?|may i take a mac away from the plan?|"
        "how do i know beforehand if a loss is bad?|where do i see which mac must not fail?|"
        "what does it cannot lose mbp mean?",
        "plan,beforehand,lose",
        "The plan says it beforehand: it names the Mac that it cannot lose.",
        "Read the plan: it tells you beforehand which Macs it can lose and which not.",
    ),
    fact(
        "linkbreaks", "happens",
        "a link breaks|the wi-fi drops out for a moment|a cable is pulled for a moment|a frame gets lost|"
        "the network stumbles",
        "does a broken link end the answer?|how often is a frame sent again?|is a broken link repaired?|"
        "what about a short break of the network?",
        "made anew,sent again",
        "The link is made anew and what was not answered is sent again, up to three times. No token changes.",
        "It costs no token: the link is made anew, and what is missing is sent again.",
        why="Both ends know which frame was the last, so nothing is computed twice.",
    ),
    fact(
        "liveness", "ask", "",
        "how does macluster notice a dead mac?|when is a mac called lost?|what are beats?|"
        "how long until a mac counts as dead?|how are dead macs detected?|after how many seconds is a mac lost?|"
        "how long until a silent mac is lost?|how do nodes check on each other?|"
        "how does it find out that a mac is dead?|how fast is a lost mac noticed?|when is a silent mac given up?",
        "beat,2.5 seconds",
        "Nodes send each other a beat every half second. After 2.5 seconds without one a Mac counts as lost.",
        "By missing beats: a Mac that is silent for 2.5 seconds is called lost.",
    ),
    fact(
        "atonce", "ask", "",
        "how fast is a dead worker noticed?|is a crash noticed at once?|how soon is a killed worker noticed?|"
        "how long until a dead worker is noticed?|is a closed link noticed at once?|"
        "how quickly does it see that a worker died?|must macluster wait to see that a worker crashed?",
        "at once",
        "A dead worker is noticed at once, for its link closes.",
        "At once: a process that dies closes its links. Only a silent Mac needs 2.5 seconds.",
    ),
    fact(
        "suspect", "what", "a suspect mac|the state suspect|suspect",
        "what does suspect mean beside a mac?|when is a mac suspect?|why is a mac marked suspect?|"
        "what does it mean that a mac is late?|a mac is shown as suspect|why is a mac slow to answer?",
        "suspect,1.2 seconds",
        "A Mac is suspect when nothing was heard from it for 1.2 seconds. It may come back.",
        "Suspect means silent for 1.2 seconds: not lost yet, but late.",
    ),
    fact(
        "stuck", "what", "stuck|a stuck ring|the state stuck",
        "when is the ring stuck?|what does stuck mean beside a mac?|why does it say stuck?",
        "stuck,alive,step",
        "Stuck means that all Macs are alive, but no step comes back.",
        "The ring is stuck when every Mac is alive and still no step comes back round it.",
    ),
)  # fmt: skip
