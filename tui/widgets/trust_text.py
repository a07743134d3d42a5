"""Text of the trust screen. Pure."""

from __future__ import annotations

from textual.content import Content

from core.events import Plan
from core.requests.trust import TrustedMac, TrustView
from tui.control.actions import key_title
from tui.control.keymap import TRUST
from tui.state.format import BAD, DIM, GOOD, TRUST_MARKS, WARN, age, fingerprint_rows, fingerprint_short, fit
from tui.state.plan_words import cable_mark
from tui.state.trust_actions import TRUST_ACTIONS, TrustAction, why_not
from tui.widgets.text_view import title_line

_KEPT = {
    "keychain": ("●", "in this Mac's keychain", GOOD),
    "file permissions": ("▲", "in a file only you can read (no keychain was open)", WARN),
}
_AS_A_RANK = "in tensor    the text: every Mac gets the token ids"
ACTIONS = {a.run: a for a in TRUST}


def title_content(view: TrustView | None, width: int) -> Content:
    if view is None:
        return Content.styled(" Trust · loading…", "bold")
    mark = TRUST_MARKS[view.level]
    least = f" · least trusted: {fit(view.weakest, 32).rstrip()}" if view.weakest and view.level != "paired" else ""
    return title_line("Trust", f"{mark.glyph} {mark.word}{least}", width, style=mark.style)


def cluster_content(view: TrustView, plan: Plan | None = None) -> Content:
    """This Mac's key, the roster, recovery words, what `plan` sends unencrypted, and a fork if there is one."""
    glyph, kept, style = _KEPT.get(view.key_storage, ("▲", view.key_storage, WARN))
    lines = [Content.assemble("This Mac's key  ", (f"{glyph} ", style), kept)]
    if view.epoch == 0:
        lines.append(Content.assemble("Roster          ", ("○ ", WARN), "none yet: p pairs this Mac with another one"))
    else:
        role = "this Mac is admin" if view.is_admin else "this Mac isn't admin"
        lines.append(
            Content.assemble(
                f"Roster          epoch {view.epoch}, adopted {age(view.roster_age_s)} ago",
                (f" · {view.roster_hash[:8]} · {role}", DIM),
            )
        )
        lines.append(_recovery(view))
    lines += _weakest(view)
    if plain := cable_mark(plan):
        added_up = f"{plain.word}: what the Macs add up over RDMA"
        lines.append(Content.assemble("Cable           ", (f"{plain.glyph} ", plain.style), added_up))
    if view.fork:
        ours, *theirs = (h[:8] for h in view.fork)
        what = f"Two rosters of epoch {view.epoch}"
        if view.fork_epoch < view.epoch or len(theirs) > 1:
            what = f"{len(view.fork)} rosters that differ from epoch {view.fork_epoch} on"
        lines.append(Content.styled(f"✗ {what}, {ours} (this Mac) and {', '.join(theirs)}. d chooses one.", BAD))
    return Content("\n").join(lines)


def _recovery(view: TrustView) -> Content:
    if view.has_recovery:
        return Content.assemble("Recovery words  ", ("● ", GOOD), "created. Anyone who has them can become admin")
    return Content.assemble("Recovery words  ", ("▲ ", WARN), "none – if no admin Mac is left, all must pair again (w)")


def _weakest(view: TrustView) -> list[Content]:
    weak = next((m for m in view.macs if m.name == view.weakest and m.level == view.level), None)
    if weak is None or not weak.reason:
        return []
    mark = TRUST_MARKS[weak.level]
    return [Content.assemble("Least trusted   ", (f"{mark.glyph} ", mark.style), f"{weak.name}: {weak.reason}")]


def mac_content(view: TrustView, mac: TrustedMac, width: int, *, whole: bool) -> Content:
    """All about one Mac, and the possible actions; its fingerprint `whole`, or its ends."""
    mark = TRUST_MARKS[mac.level]
    could_be_a_rank = mac.level == "paired" and not mac.is_self and "token ids" not in mac.sees
    lines = [
        Content.assemble((f"{mark.glyph} {mark.word}", mark.style), (f" · {mac.role} · {mac.device_id[:8]}", DIM)),
        *([Content(f"{mac.reason}")] if mac.reason else []),
        Content.assemble(("key SHA-256  ", DIM), _key(mac, width, whole=whole)),
        *([Content.assemble(("since epoch  ", DIM), str(mac.added_epoch))] if mac.added_epoch else []),
        Content.assemble(("sees         ", DIM), mac.sees or "nothing (it isn't part of the loaded model)"),
        *([Content.styled(_AS_A_RANK, DIM)] if could_be_a_rank else []),
        Content(""),
    ]
    return Content("\n").join([*lines, *_actions_content(view, mac)])


def _actions_content(view: TrustView, mac: TrustedMac) -> list[Content]:
    reasons: dict[str, list[TrustAction]] = {}
    for action in TRUST_ACTIONS:
        reasons.setdefault(why_not(view, mac, action), []).append(action)
    lines: list[Content] = []
    for why, actions in sorted(reasons.items()):
        if why and view.fork is None:
            actions = [p for p in actions if p != "decide"]  # nothing to decide without a fork
        if why and actions:
            lines += [*([Content("")] if lines else []), Content.styled(why, WARN)]
        for action in actions:
            key_action = ACTIONS[action]
            key = (f"{key_title(key_action.keys)} ", DIM if why else "bold $accent")
            lines.append(Content.assemble(key, (key_action.title, DIM if why else "")))
    return lines


def _key(mac: TrustedMac, width: int, *, whole: bool) -> str:
    if not mac.fingerprint:
        return "shown once it is paired"
    if not whole:
        return f"{fingerprint_short(mac.fingerprint)}  (f: all)"
    return fingerprint_rows(mac.fingerprint, 8 if width >= 54 else 4)
