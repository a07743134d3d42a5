"""Facts: the API for other programs, its keys, and what clients need."""

from __future__ import annotations

from core.demo.training.facts import command_pair, fact

FACTS = (
    *command_pair("serve", "macluster serve", "let other programs use the cluster|start the API|serve the model",
                  "runs the node with an API that other programs can ask", "programs can ask"),
    *command_pair("newkey", "macluster serve --new-key NAME", "make an API key|create a key for a program",
                  "makes an API key for a program and shows it once", "key,once"),
    *command_pair("snippets", "macluster serve --snippets CLIENT", "see what to paste into another program|"
                  "get the settings for a client",
                  "prints what to paste into a program such as aider, Codex or Zed", "paste"),
    fact(
        "api", "what", "the api|the public api|the api of macluster",
        "can other programs use my cluster?|is there an api?",
        "programs,openai",
        "The API lets other programs ask the cluster in OpenAI's way. `macluster serve` starts it.",
        "It is the door for other programs: they speak to macluster as to OpenAI, with a key of their own.",
    ),
    fact(
        "apiaddress", "ask", "",
        "what is the address of the api?|which port has the api?|what is the base url?",
        "4720",
        "The API is at http://127.0.0.1:4720/v1.",
        "Programs ask at port 4720: http://127.0.0.1:4720/v1.",
    ),
    fact(
        "openai", "ask", "",
        "can i use the openai library?|does it work with openai clients?|is it compatible with openai?",
        "address,key,openai",
        "Any OpenAI client works: give it the address http://127.0.0.1:4720/v1 and an API key.",
        "Yes: whatever speaks to OpenAI takes the address of `macluster serve` and a key.",
    ),
    fact(
        "anthropic", "ask", "",
        "can i use claude code?|do anthropic clients work?|does it speak the messages api?",
        "anthropic,without",
        "Anthropic's clients, such as Claude Code, take the address of the API without /v1.",
        "Yes: Anthropic's messages are understood; the client takes the address without /v1.",
    ),
    fact(
        "apikeyonce", "ask", "",
        "can i see an api key again?|i lost my api key|where is my api key stored?",
        "once,new",
        "No: an API key is shown once. Make a new one and revoke the old one.",
        "An API key is shown only once. If it is lost, make a new key.",
    ),
    fact(
        "apikeyrevoke", "ask", "",
        "how do i revoke an api key?|how do i take a key away from a program?",
        "--revoke-key",
        "`macluster serve --revoke-key NAME` ends an API key, and so does x on the screen of other programs (A).",
        "Type `macluster serve --revoke-key NAME`: whoever has that key is refused from now on.",
    ),
    fact(
        "apinokey", "ask", "",
        "do programs need a key?|can the api be used without a key?|is the api open to everybody?",
        "key,--no-key",
        "Programs need an API key, unless you say --no-key for programs of this Mac.",
        "Without a key a program is refused; --no-key allows it for this Mac alone.",
    ),
    fact(
        "apihost", "ask", "",
        "can another computer use the api?|how do i reach the api from other machines?",
        "--host,tls",
        "`macluster serve --host 0.0.0.0` serves other machines, over TLS with a certificate of this Mac.",
        "With --host the API listens for other machines too, over TLS by its own certificate.",
    ),
    fact(
        "relay", "ask", "",
        "which mac do programs have to ask?|can programs ask any paired mac?",
        "any paired mac,relay/passes",
        "Programs may ask any paired Mac: it relays the request to the Mac that leads.",
        "Any paired Mac will do; one that does not lead passes the request on over the sealed link.",
    ),
    fact(
        "allowload", "what", "--allow-load|the --allow-load option",
        "can a program load another model?|what if a request names another model?",
        "--allow-load,loaded",
        "With --allow-load a request that names another model of this Mac has it loaded.",
        "--allow-load lets programs choose: a model that they name is loaded, if it is on this Mac's disk.",
    ),
    fact(
        "apiqueue", "ask", "",
        "how many api requests may wait?|what happens when the api is full?|what does status 429 mean?",
        "100,429",
        "100 requests of programs may wait (--queue); the next one gets 429 and comes again later.",
        "The API lets 100 requests wait. One more is told 429: come again later.",
    ),
    fact(
        "metrics", "what", "/metrics|the metrics page",
        "can prometheus watch macluster?|how do i monitor the cluster?",
        "metrics,prometheus",
        "/metrics gives Prometheus the figures of the screen: requests, tokens, queue and hops.",
        "Prometheus reads /metrics, with a key: requests, tokens, times and hops.",
    ),
    fact(
        "demoserve", "ask", "",
        "can the demo serve programs?|how do i try the api without other macs?|is there an api in the demo?",
        "demo --serve",
        "`macluster demo --serve 4720 --key KEY` serves programs from three simulated Macs.",
        "Type `macluster demo --serve 4720 --key KEY` to try the API in the demo.",
    ),
    fact(
        "tools", "ask", "",
        "can agents call tools?|does the api support function calling?|do coding agents work?",
        "tools,agents",
        "Yes: agents that call tools work over the API, as far as the model's family knows how.",
        "Agents may call tools: definitions and calls go through the model's own chat template.",
    ),
    fact(
        "shape", "what", "--schema|the --schema option|an answer with a shape",
        "can an answer be forced to be json?|how do i get valid json from the model?|can i force a regex?",
        "--schema,--regex",
        "With --schema FILE an answer is a document of that JSON schema; --regex and --grammar force other forms.",
        "--schema, --regex or --grammar force the form of an answer, token by token.",
    ),
    fact(
        "runurl", "what", "--url|the --url option of run",
        "how do i ask another mac's api in the shell?|can run ask another mac?",
        "--url",
        "`macluster run MODEL --url URL --key KEY` asks another Mac's API instead of this node.",
        "With --url `macluster run` asks the API at that address, with --key for its key.",
    ),
    fact(
        "apiprivacy", "ask", "",
        "are requests of programs stored?|does the api keep what programs ask?|are api prompts logged?",
        "nowhere/never,disk",
        "No: what programs ask over the API is nowhere on disk.",
        "What other programs ask is never written to the disk, not even sealed.",
    ),
)  # fmt: skip
