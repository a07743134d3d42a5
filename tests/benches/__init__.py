"""Benches for developers: `macluster bench NAME` in a checkout."""

BENCHES = {
    "batch": "eight rows against one, and lanes against one lane",
    "beside": "prefill on a fast Mac next to a ring of slow ones",
    "comms": "reduces of a tensor plan, sealed against plain",
    "compare": "this ring against mlx_lm, its server and its pipeline",
    "copy": "a sealed copy between two nodes against plain TCP",
    "forecast": "predicted speed against measured speed",
    "growth": "how costs grow with what a home keeps",
    "hop": "a sealed hop of 8 KiB against plain TCP",
    "loop": "the engine's loop without a ring against mlx_lm",
    "plain": "a sealed ring of two stages against mlx-lm's plain pipeline",
    "prefill": "several prompt chunks in flight against one",
    "reuse": "later turns of a conversation with and without the prefix cache",
    "schema": "answers in a JSON schema against free text",
    "solo": "two stages and one worker against mlx_lm in one process",
    "speculate": "drafted tokens against plain decoding",
    "tensor": "two tensor ranks against one process and two stages",
    "topology": "private, forward and reverse against each other",
    "trace": "decoding with phase tracing against without",
    "tui": "first frame, key to paint and idle CPU of the UI",
}
