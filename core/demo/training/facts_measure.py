"""Facts: commands that check, trace and measure, and those that look after the node."""

from __future__ import annotations

from core.demo.training.facts import command_pair, fact

FACTS = (
    *command_pair("trace", "macluster trace -o FILE", "trace what every stage does|see each phase of a step as a file",
                  "shows what every stage does while answers run, phase by phase; the file opens in Perfetto",
                  "stage,phase"),
    *command_pair("doctor", "macluster doctor", "find out what is wrong with this mac|get advice when no mac is found",
                  "says what is wrong with this Mac, its node and its network, and what to do", "wrong,what to do"),
    *command_pair("verify", "macluster verify",
    "prove that macluster works on this very mac|make a report for an issue",
                  "proves on this very Mac what can be proved, as a report for an issue", "proves,report"),
    *command_pair("service", "macluster service install", "run the node from boot on|start the node without a login",
                  "runs the node from boot on, and starts it again after a fault", "boot"),
    *command_pair("speedtest", "macluster speedtest TO",
    "measure the link to a mac by command|test the network in the shell",
                  "measures round trip and rate of the sealed link to a Mac", "round trip,rate"),
    *command_pair("eval", "macluster eval TASK",
    "evaluate the model with lm-eval|measure the quality of the loaded model",
                  "has lm-eval ask the loaded model, over the ring and in one process", "lm-eval"),
    *command_pair("compare", "macluster bench compare", "compare with mlx_lm's server and pipeline|"
                  "set macluster beside other ways to serve a model",
                  "asks mlx_lm, its server, its pipeline and our ring the same questions", "server,pipeline"),
    *command_pair("scenarios", "macluster bench scenarios", "put load on the api|run load tests",
                  "puts ten loads on the API of simulated clusters, with a report", "loads,report"),
    *command_pair("loop", "macluster bench loop", "measure the loop of the ring in one process|"
                  "find out what our own loop costs",
                  "says what the loop of the ring costs in one process beside mlx_lm", "loop,one process"),
    *command_pair("completions", "macluster completions SHELL", "let the shell complete commands|set up tab completion",
                  "prints what lets zsh, bash or fish complete the commands", "zsh,complete"),
    *command_pair("uninstall", "macluster uninstall", "remove macluster from this mac|uninstall everything",
                  "removes the service and the state folder, and says what is left", "removes"),
    *command_pair("keys", "macluster keys", "list every key in the shell|see the ids of the keys",
                  "lists every key, and the id by which it can be changed", "every key,id"),
    fact(
        "forecast", "what", "macluster bench forecast|the forecast bench|bench forecast",
        "how good are the forecasts of speed?|can i test whether a forecast is right?",
        "12 ways,near",
        "`macluster bench forecast` foretells 12 ways to share a model, loads each and says how near it was.",
        "It foretells the speed of 12 ways to share a model, then measures each, and tells how near the forecast came.",
    ),
    fact(
        "doctorverify", "ask", "",
        "what is the difference between doctor and verify?|doctor or verify?|should i use doctor or verify?",
        "doctor,verify,proves",
        "Doctor says what is wrong and what to do; verify proves that macluster works right on this Mac.",
        "`macluster doctor` helps when something fails. `macluster verify` proves what works, as a report.",
    ),
    fact(
        "nodefails", "happens", "the node does not start|the port is taken|the node ends by a fault",
        "why does my node not start?|the port is in use, what now?|what should i do when the node will not start?",
        "screen,N,P",
        "The screen says why in the node's own words: N tries again, and P takes another port.",
        "Read what the screen says, then press N to try again or P for another port.",
    ),
    fact(
        "install", "ask", "",
        "how do i install macluster?|what do i need to install it?|how do i set macluster up for good?",
        "make dist,uv tool install",
        "Type `make dist && uv tool install dist/macluster-*.whl`. It needs Python 3.11 and macOS 14 on a Mac.",
        "Build it with `make dist`, then `uv tool install` (or pipx) takes the wheel.",
    ),
    fact(
        "version", "ask", "",
        "which version of macluster do i have?|how do i see the version?|is there a --version?",
        "--version",
        "`macluster --version` names the version, and what it runs on.",
        "Type `macluster --version`.",
    ),
)  # fmt: skip
