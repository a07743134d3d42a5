from __future__ import annotations

import json
import os

import msgspec
import pytest

from core.errors import DoesNotFit, LinkLost
from core.events import (
    Counters,
    HopSample,
    Peer,
    Plan,
    PlanLoaded,
    PlanProposed,
    Recovery,
    RequestDone,
    Snapshot,
    StageState,
    TokenEvent,
)
from core.models.files.layers_on_disk import size_text
from core.requests.answers import Message, UnfinishedAnswer
from core.requests.plans import Forecast, ModelChoice, PlanPreview
from core.settings import GB
from core.snapshot import apply
from core.text import clean_text
from tests.support.plans import mac_id, plan_of
from tui.cli.answering import answer_facts, done_line, hop_lines, recovery_line
from tui.cli.models import model_facts, model_lines
from tui.cli.output import table, to_json
from tui.cli.plan import plan_facts, plan_lines, preview_facts, preview_lines
from tui.cli.status import status_facts, status_lines, unfinished_facts, unfinished_lines, worker_facts
from tui.state.plan_words import survival

STAGE = [
    *("peer", "device_id", "start", "stop", "bytes", "kv_bytes", "step_bytes", "tokenizer_bytes", "budget_bytes"),
    *("free_bytes", "sees"),
]
HOP_TIMES = ["compute_s", "wait_s", "seal_s", "open_s", "send_s", "rtt_s"]


def hop(source: int, target: int) -> HopSample:
    return HopSample(
        source=mac_id(source),
        target=mac_id(target),
        frames=4,
        bytes=2_000_000,
        compute_s=0.004,
        codec_s=0.0,
        seal_s=0.0004,
        send_s=0.0008,
        wait_s=0.008,
        open_s=0.0012,
        rtt_s=0.0015 if source == 0 else None,
    )


def after_an_answer() -> Snapshot:
    peers = (
        Peer(device_id=mac_id(0), name="mac0", is_self=True, worker_pid=os.getpid(), worker_rss_bytes=5),
        Peer(device_id=mac_id(1), name="mac1", worker_pid=None),
    )
    now = apply(Snapshot(version="1", peers=peers), PlanProposed(plan=plan_of(2)))
    for event in (
        StageState(device_id=mac_id(0), status="ready", weight_bytes=1000),
        PlanLoaded(plan_gen=100, seconds=1.0),
        hop(0, 1),
        hop(1, 0),
    ):
        now = apply(now, event)
    return now


DONE = RequestDone(
    request_id="r",
    finish_reason="length",
    prompt_tokens=9,
    tokens=2,
    text="!",
    ttft_s=0.25,
    decode_tokens_per_s=12.5,
)
TOKENS = [
    TokenEvent(request_id="r", index=0, token=70, text="Hel"),
    TokenEvent(request_id="r", index=1, token=71, text="lo"),
]


def test_the_answer_has_the_keys_that_programs_rely_on() -> None:
    facts = json.loads(to_json(answer_facts(after_an_answer(), TOKENS, DONE)))
    assert [facts["plan"][k] for k in ("topology", "output", "layers", "context")] == ["private", "mac0", 4, 64]
    assert [sorted(s) for s in facts["plan"]["stages"]] == [sorted(STAGE)] * 2
    first = facts["plan"]["stages"][0]
    assert [first[k] for k in ("peer", "start", "stop", "bytes")] == ["mac0", 0, 2, 1000]
    assert (facts["tokens"], facts["text"]) == ([70, 71], "Hello!")
    assert [facts[k] for k in ("finish_reason", "prompt_tokens", "ttft_s", "decode_tokens_per_s", "problem")] == [
        "length",
        9,
        0.25,
        12.5,
        None,
    ]
    assert [(h["from"], h["to"], h["frames"], h["bytes"]) for h in facts["hops"]] == [
        ("mac0", "mac1", 4, 2_000_000),
        ("mac1", "mac0", 4, 2_000_000),
    ]
    assert [facts["hops"][0][k] for k in HOP_TIMES] == [0.004, 0.008, 0.0004, 0.0012, 0.0008, 0.0015]
    assert facts["hops"][1]["rtt_s"] is None
    assert facts["trust"] == {"level": "unpaired", "weakest": ""}
    (worker,) = facts["workers"]
    assert (worker["peer"], worker["pid"], worker["weight_bytes"]) == ("mac0", os.getpid(), 1000)
    assert worker["rss_bytes"] > 1_000_000, "read from the process itself, for it is on this Mac"


def test_a_worker_that_is_gone_has_its_last_known_memory() -> None:
    gone = Peer(device_id=mac_id(0), name="mac0", is_self=True, worker_pid=1 << 31, worker_rss_bytes=5)
    assert worker_facts(gone, Snapshot())["rss_bytes"] == 5


@pytest.mark.parametrize("pid", [pytest.param(os.getpid(), id="own"), pytest.param(-1, id="hostile")])
def test_a_process_id_of_another_mac_is_not_looked_up_on_this_one(pid: int) -> None:
    far = Peer(
        device_id=mac_id(1), name="mac1", address="192.168.1.7:4717", worker_pid=pid, worker_rss_bytes=5, is_self=False
    )
    assert worker_facts(far, Snapshot())["rss_bytes"] == 5


def test_a_plan_that_does_not_fit_is_told_as_facts() -> None:
    problem = DoesNotFit("toy needs 3.0 GB more.").problem
    facts = json.loads(to_json(preview_facts(PlanPreview(problem=problem))))
    assert facts["plan"] is None
    assert facts["problem"]["kind"] == "DoesNotFit"


def split(*needs: int, notes: tuple[str, ...] = ()) -> Plan:
    """A plan of four layers over Macs of 10 GB, whose stages need `needs` GB."""
    plan = plan_of(len(needs))
    stages = tuple(
        msgspec.structs.replace(s, weight_bytes=n * GB, kv_bytes=0, budget_bytes=10 * GB)
        for s, n in zip(plan.stages, needs, strict=True)
    )
    return msgspec.structs.replace(plan, stages=stages, notes=notes)


def test_a_plan_tells_what_stays_free_what_is_sent_and_where_it_may_be_cut() -> None:
    preview = PlanPreview(plan=split(8, 3, notes=("mac1 begins with layer 2.",)), cuts=(2,), hop_bytes=(384, 768))
    lines = preview_lines(preview)
    assert lines[2].split()[-4:] == ["2.0", "GB", "384", "B"]
    assert lines[4:] == [
        "mac1 begins with layer 2.",
        "mac1 can drop out; mac0 can take over.",
        "mac0 would see token ids, logits.",
        "mac1 would see hidden states of layers 2–3.",
        "It can only be cut before layer 2.",
        "Rows of several requests share a batch.",
    ]
    facts = json.loads(to_json(preview_facts(preview)))
    assert [(h["from"], h["to"], h["bytes_per_token"]) for h in facts["hops"]] == [
        ("mac0", "mac1", 384),
        ("mac1", "mac0", 768),
    ]
    assert (facts["cuts"], facts["plan"]["batched"], facts["plan"]["notes"]) == (
        [2],
        True,
        ["mac1 begins with layer 2."],
    )


@pytest.mark.parametrize(
    ("macs", "held", "words"),
    [
        pytest.param(1, [], "", id="one"),
        pytest.param(2, [], "mac1 can drop out; mac0 can take over.", id="two"),
        pytest.param(2, [1], "If mac1 drops out, the answer has to wait: mac0 has too little memory.", id="two-held"),
        pytest.param(3, [], "Any Mac except mac0 can drop out; the others can take over.", id="any"),
        pytest.param(
            3, [2], "If mac2 drops out, the answer has to wait: the others have too little memory.", id="held"
        ),
        pytest.param(
            3,
            [1, 2],
            "If mac1 or mac2 drops out, the answer has to wait: the others have too little memory.",
            id="both-held",
        ),
        pytest.param(3, [0, 7], "Any Mac except mac0 can drop out; the others can take over.", id="hostile"),
    ],
)
def test_a_plan_says_which_mac_it_can_lose(macs: int, held: list[int], words: str) -> None:
    plan = msgspec.structs.replace(split(*[1] * macs), indispensable=tuple(mac_id(n) for n in held))
    assert survival(plan) == words
    assert (words in plan_lines(plan)) == bool(words)
    told = json.loads(to_json(plan_facts(plan)))
    assert told["indispensable"] == [f"mac{n}" for n in held if n < macs]


def test_a_reverse_plan_is_told_in_the_order_of_its_layers_and_its_hops_in_that_of_the_ring() -> None:
    plan = split(8, 3)
    head, other = plan.stages
    stages = msgspec.structs.replace(head, start=2, stop=4), msgspec.structs.replace(other, start=0, stop=2)
    reverse = msgspec.structs.replace(plan, topology="reverse", stages=stages)
    preview = PlanPreview(plan=reverse, hop_bytes=(4, 768))
    lines = preview_lines(preview)
    assert [line.split()[0] for line in lines[2:4]] == ["mac1", "mac0"]
    assert [line.split()[-2:] for line in lines[2:4]] == [["768", "B"], ["4", "B"]]
    assert "mac0 (head)" in lines[3]
    assert lines[5:] == ["mac1 would see token ids.", "mac0 would see token ids, logits."]
    told = json.loads(to_json(preview_facts(preview)))
    assert [s["sees"] for s in told["plan"]["stages"]] == ["token ids, logits", "token ids"]
    assert [(h["from"], h["bytes_per_token"]) for h in told["hops"]] == [("mac0", 4), ("mac1", 768)]


def test_a_split_that_does_not_fit_is_shown_with_what_is_missing_where() -> None:
    problem = DoesNotFit("toy needs 4.1 GB more on mac1.").problem
    preview = PlanPreview(draft=split(8, 14), problem=problem, cuts=(1, 2, 3))
    lines = preview_lines(preview)
    assert lines[3].endswith("4.0 GB short")
    assert not any("lose" in line for line in lines), "what doesn't fit has nothing to lose"
    assert lines[-1].startswith("toy needs 4.1 GB more on mac1. Free memory there")
    facts = json.loads(to_json(preview_facts(preview)))
    assert facts["plan"] is None
    assert [s["free_bytes"] for s in facts["draft"]["stages"]] == [2 * GB, -4 * GB]


@pytest.mark.parametrize(
    ("preview", "loaded", "words"),
    [
        (PlanPreview(plan=split(1, 1, 1)), False, "3 Macs"),
        (PlanPreview(plan=split(1)), False, "1 Mac, no hops"),
        (PlanPreview(plan=split(1)), True, "loaded"),
        (PlanPreview(draft=split(8, 14), problem=DoesNotFit("x").problem), False, "needs 4.0 GB more on mac1"),
        (PlanPreview(problem=LinkLost("config.json is\x1b broken.").problem), False, "config.json is broken."),
    ],
)
def test_a_model_says_how_it_fits(preview: PlanPreview, loaded: bool, words: str) -> None:
    model = ModelChoice(
        name="toy",
        path="/toy",
        model_type="llama",
        layers=4,
        total_bytes=GB,
        quantization="4-bit",
        context_max=8192,
        loaded=loaded,
        preview=preview,
    )
    head, row = model_lines([model])
    assert head.split() == ["model", "family", "weights", "size", "layers", "context", "fit"]
    assert row.split(maxsplit=7) == ["toy", "llama", "4-bit", "1.0", "GB", "4", "8192", words]
    assert model_facts(model)["fit"] == words


@pytest.mark.parametrize(
    ("rows", "lines"),
    [
        ([], ["Mac  id  size"]),
        ([("a", "1", "22"), ("longer", "333", "4")], ["Mac      id  size", "a         1    22", "longer  333     4"]),
        ([("ä→", "1", "")], ["Mac  id  size", "ä→    1"]),
    ],
)
def test_columns_line_up(rows: list[tuple[str, str, str]], lines: list[str]) -> None:
    assert table(("Mac", "id", "size"), rows) == lines


def test_lines_for_people() -> None:
    now = after_an_answer()
    assert now.plan
    names = {p.device_id: p.name for p in now.peers}
    plan = plan_lines(now.plan)
    assert plan[0] == "Plan: toy, 4 layers, topology private, context 64 tokens"
    assert plan[2].split() == ["mac0", "(head)", "0–1", "2", *["0.0", "MB"] * 6]
    assert len({len(line) for line in plan[1:-1]}) == 1
    hops = hop_lines(now.hops, names)
    expected = ["mac0", "→", "mac1", "4", "2.00", "MB", "1.00", "2.00", "0.10", "0.20", "0.30", "1.5"]
    assert hops[2].split() == expected
    assert hops[3].split()[-1] == "–"
    assert done_line(DONE) == "2 tokens, 12.5 tokens/s, first token after 0.25 s, finish: length"
    helped = msgspec.structs.replace(DONE, prompt_tokens=40, reused_tokens=30, drafted_tokens=8, accepted_tokens=5)
    more = ", 30 of 40 prompt tokens cached, 5 of 8 draft tokens accepted"
    assert done_line(helped) == done_line(DONE) + more
    short = msgspec.structs.replace(DONE, ttft_s=None, decode_tokens_per_s=None)
    assert done_line(short) == "2 tokens, too short for a rate, first token after –, finish: length"


def test_no_text_of_another_mac_drives_the_terminal() -> None:
    evil = "\x1b]52;c;aGk=\x07"
    now = Snapshot(
        peers=(Peer(device_id=mac_id(1), name=evil, chip=evil),),
        plan_problem=LinkLost(f"Gone: {evil}", evil).problem,
    )
    assert not [line for line in status_lines(now) if "\x1b" in line or "\x07" in line]


@pytest.mark.parametrize(
    ("count", "words"), [(0, "0.0 MB"), (99_900_000, "99.9 MB"), (100_000_000, "0.1 GB"), (64_000_000_000, "64.0 GB")]
)
def test_sizes(count: int, words: str) -> None:
    assert size_text(count) == words


def test_status_tells_why_a_mac_is_not_reached_and_what_came_to_the_door() -> None:
    lost = Peer(device_id=mac_id(1), name="mini", problem="At 10.0.0.9:4717: a wrong key.\x1b[2J")
    now = apply(Snapshot(peers=(lost,)), Counters(accepted=12, refused_by_rate=3, links_open=1))
    lines = status_lines(now)
    assert f"mini ({lost.short_id}): At 10.0.0.9:4717: a wrong key.[2J" in lines
    assert lines[-1] == "Network: accepted 12, refused by rate 3, links open 1"
    counters = status_facts(now)["counters"]
    assert (counters["accepted"], counters["failed_auth"], counters["mdns_evicted"]) == (12, 0, 0)
    assert not any(line.startswith("Network") for line in status_lines(Snapshot()))


def test_a_continued_answer_is_told_whole_with_what_happened_meanwhile() -> None:
    told = Recovery(state="wait", text="mini is\x1b[2J gone.", fix="Wake it up.", choices=("wait", "save"))
    facts = json.loads(to_json(answer_facts(after_an_answer(), TOKENS, DONE, before="Oh, ", recoveries=[told])))
    assert (facts["text"], facts["tokens"]) == ("Oh, Hello!", [70, 71])
    (recovery,) = facts["recoveries"]
    assert [recovery[k] for k in ("state", "fix", "eta_s", "choices")] == [
        "wait",
        "Wake it up.",
        None,
        ["wait", "save"],
    ]
    assert recovery_line(told) == clean_text("mini is\x1b[2J gone. Wake it up.")


def test_unfinished_answers_are_counted_and_how_they_go_on_is_said_without_their_words() -> None:
    answers = [
        UnfinishedAnswer(
            request_id="ab" * 16,
            model=model,
            messages=(Message(role="user", content="secret"),),
            text="secret",
            tokens=9,
            max_tokens=50,
            at=5.0,
        )
        for model in ("toy\x1b[2J", "other")
    ]
    (line,) = unfinished_lines(answers)
    model = clean_text(answers[0].model)
    assert line.startswith(f"Unfinished answers: 2. `macluster run {model} --continue` continues the newest")
    assert "\x1b" not in line
    assert unfinished_lines([]) == []
    facts = json.loads(to_json(unfinished_facts(answers)))
    assert facts[1] == {"request_id": "ab" * 16, "model": "other", "tokens": 9, "max_tokens": 50, "at": 5.0}


@pytest.mark.parametrize(
    ("measured", "advice", "lines"),
    [
        pytest.param(True, "", ["measured here"], id="measured"),
        pytest.param(False, "a alone is faster.", ["estimated", "a alone is faster."], id="guess"),
    ],
)
def test_a_forecast_says_what_it_rests_on(measured: bool, advice: str, lines: list[str]) -> None:
    told = Forecast(
        stages_s=(0.03, 0.02), hops_s=(0.01, 0.02), prompt_s=2.5, load_s=40, measured=measured, advice=advice
    )
    preview = PlanPreview(plan=plan_of(2), forecast=told)
    said = preview_lines(preview)
    (expected,) = [line for line in said if line.startswith("Expected: 12.5 tokens/s for one request")]
    assert "first token after 2.5 s per 1000 prompt tokens, loaded in 40 s." in expected
    assert all(any(part in line for line in said) for part in lines)
    facts = preview_facts(preview)["forecast"]
    assert (facts["tokens_per_s"], facts["measured"]) == (pytest.approx(12.5), measured)
    assert not [line for line in preview_lines(PlanPreview(plan=plan_of(2))) if "Expected" in line]
    assert preview_facts(PlanPreview(plan=plan_of(2)))["forecast"] is None
