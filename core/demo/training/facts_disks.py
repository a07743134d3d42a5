"""Facts: how models come to disks, which parts lie where, and how room comes back."""

from __future__ import annotations

from core.demo.training.facts import command_pair, fact

FACTS = (
    *command_pair("download", "macluster download REPO", "download a model|fetch a model from the hub",
                  "downloads a model from the Hugging Face hub, and goes on where it stopped", "hub,goes on"),
    *command_pair("copy", "macluster copy MODEL", "copy a model to the other macs|send a model to another mac's disk",
                  "copies a model to the paired Macs that lack it, over sealed links", "copies,lack"),
    *command_pair("transfers", "macluster transfers", "list the downloads under way|see what is on its way to disks",
                  "lists what is on its way to disks", "on its way"),
    *command_pair("trim", "macluster models trim", "give disk room back|delete parts of models that no plan needs",
                  "lets go of layers on this disk that no plan needs, and asks first", "no plan needs"),
    fact(
        "transferscontrol", "ask", "",
        "how do i pause a download in the shell?|can i resume a copy by command?|how do i stop a transfer by command?",
        "transfers pause",
        "`macluster transfers pause`, `resume` and `stop` change what is on its way; `limit MB` slows it.",
        "Type `macluster transfers pause`, and later `macluster transfers resume`; `stop` ends it.",
    ),
    fact(
        "limitoption", "what", "--limit|the --limit option|the limit of a download",
        "how do i keep a download from taking my whole line?|can a copy be made slower by an option?",
        "--limit,megabytes",
        "`macluster download REPO --limit MB` takes no more than so many megabytes a second; copy has --limit, too.",
        "--limit MB lets a download or a copy come no quicker than so many megabytes a second.",
    ),
    fact(
        "splitdownload", "ask", "",
        "can each mac download only its own layers?|what does download --split do?|must one disk hold all of a model?",
        "--split,part/layers",
        "With `macluster download REPO --split` each Mac fetches only the layers that it holds in the plan.",
        "--split brings to each Mac only its part of the model, so no disk needs room for all of it.",
    ),
    fact(
        "resumedownload", "happens", "a download is interrupted|the network fails during a download|"
        "i quit while a model is downloaded",
        "does a download start over?|must i download everything again?",
        "goes on,where it stopped",
        "A download goes on where it stopped, also after a crash. Begin it again with the same command.",
        "Nothing is lost: it goes on where it stopped when you start it again.",
    ),
    fact(
        "pausedstays", "happens", "i pause a download and restart the mac|a mac with a paused download restarts",
        "is a paused download still paused after a restart?|does a paused copy go on by itself after a reboot?",
        "still paused",
        "It is still paused after the restart; when you let it go on, it keeps its limit.",
        "What was paused is still paused after a restart, and goes on with its limit once you say so.",
    ),
    fact(
        "knowncommand", "ask", "",
        "how do i list known models in the shell?|which models could i download? as text|is there models --known?",
        "models --known",
        "`macluster models --known` lists well-known models of the hub, and how they would fit.",
        "Type `macluster models --known`: it lists models that you could download.",
    ),
    fact(
        "spare", "what", "--spare|the --spare option|spare layers on a disk",
        "can a mac keep layers of its neighbours on its disk?|how is a lost mac replaced without a copy?",
        "--spare,neighbours,disk",
        "--spare GB has each Mac keep so much of its neighbours' layers on its disk, for the case that one is lost.",
        "With --spare GB a lost Mac is replaced without a copy: its neighbours have its layers on disk.",
    ),
    fact(
        "knownmodels", "what", "the list of known models|known models|the known models of the picker",
        "i have no model, what does the picker show?|which models should i download?|which model fits my macs best?",
        "fits,first",
        "Where no disk has a model, the picker lists known models; what fits your Macs best comes first, and d fetches "
        "it.",
        "The picker knows models of the hub with size and speed: what fits best is first, d downloads it.",
    ),
    fact(
        "diskmap", "ask", "",
        "where do i see which layers lie on which disk?|how do i follow a download on the screen?|"
        "where is the progress of a download?",
        "ctrl+o,disk",
        "In the model picker (Ctrl+O): what comes, its rate and time left, and a map of the layers on every disk.",
        "Ctrl+O shows it: the rate and time left of a download, and which layers lie on which disk.",
    ),
    fact(
        "spareworker", "what", "the second worker|the spare worker|a worker that stands ready",
        "why are there two workers on a mac?|what takes 50 mb beside the worker?|can i turn the second worker off?",
        "second worker,stands ready/ready",
        "A second worker stands ready on each Mac while a model is loaded, and takes the place of one that crashes.",
        "The second worker takes 50 MB and is ready if the first one crashes; spare_worker = false spares it.",
    ),
)  # fmt: skip
