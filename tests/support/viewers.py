"""Reads a file in Chrome's trace format as Perfetto does: offline, and more strictly."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import Any

NAMED = {"process_name": str, "process_sort_index": int, "thread_name": str}
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # half a surrogate pair: Perfetto reads it again and again
LONG = re.compile(r"\.\d{19}")  # overflows: Perfetto reads another number


def opened(text: str) -> dict[tuple[int, int], list[dict[str, Any]]]:
    """Slices of each track in order, by process and thread.

    Fails for a file that a viewer would refuse, or show in part or misplaced: slices of a track follow each other in
    whole nanoseconds.
    """
    assert not SURROGATE.search(text)
    assert not LONG.search(text)
    told = json.loads(text)
    json.dumps(told, allow_nan=False)
    assert set(told) == {"traceEvents", "metadata"}, "Perfetto passes over all else"
    tracks, named = defaultdict[tuple[int, int], list[dict[str, Any]]](list), set[tuple[str, int, int | None]]()
    for event in told["traceEvents"]:
        assert type(event["pid"]) is int
        assert event["pid"] > 0
        if event["ph"] == "M":
            ((_, value),) = event["args"].items()
            assert isinstance(value, NAMED[event["name"]])
            named.add((event["name"], event["pid"], event.get("tid")))
            continue
        assert event["ph"] == "X"
        assert {*event} == {"ph", "pid", "tid", "name", "cat", "ts", "dur", "args"}
        assert event["name"]
        assert all(type(event[time]) in (int, float) and event[time] >= 0 for time in ("ts", "dur"))
        tracks[event["pid"], event["tid"]].append(event)
    assert len({tid for _, tid in tracks}) == len(tracks), "a thread belongs to one process"
    for (pid, tid), slices in tracks.items():
        assert {("process_name", pid, None), ("process_sort_index", pid, None), ("thread_name", pid, tid)} <= named
        ended = 0
        for one in slices:
            begins, lasts = 1000 * one["ts"], 1000 * one["dur"]
            assert begins == int(begins) >= ended
            assert lasts == int(lasts) > 0, "what lasts no time is put below its like"
            ended = int(begins) + int(lasts)
    return dict(tracks)
