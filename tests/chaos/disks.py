"""Faults of disks: they are full."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from core.errors import MaclusterError
from core.requests.conversations import SessionName
from core.settings import Home
from core.trust.private_files import private_folder
from tests.chaos.bed import Bed
from tests.chaos.trial import ANSWER_S, LONG, SHORT, TOKENS, Ask, Point, Tried, answer_of, draw, ended, nothing


async def full_disk_at_save(bed: Bed, dice: random.Random) -> Tried:
    """No room for a session: the one before it stays, the running answer continues, the reason is clear."""
    cluster = bed.cluster
    wrong: list[str] = []
    with _small_disk(cluster.macs[0].home.sessions, "16m"):
        await bed.disturb(Point("decode", (Ask(SHORT[0], 8),), 0.0, 0.0), nothing)
        await cluster.head.client.save_session(SessionName(name="chaos"))
        before = _sessions_of(cluster.macs[0].home)

        async def act() -> None:
            filler = _fill(cluster.macs[0].home.sessions)
            try:
                await cluster.head.client.save_session(SessionName(name="chaos"))
                wrong.append("A session was saved on a full disk.")
            except MaclusterError as error:
                wrong.extend(() if "space" in str(error).lower() else (f"It was not said why: {error}",))
            filler.unlink()

        tried = await bed.disturb(draw("decode", dice), act)
        if _sessions_of(cluster.macs[0].home) != before:
            wrong.append("The session before it is not what it was.")
        await cluster.head.client.save_session(SessionName(name="chaos"))
    return tried._replace(wrong=(*tried.wrong, *wrong))


async def full_disk_at_log(bed: Bed, dice: random.Random) -> Tried:
    """No room for the token log: the answer ends with the reason, and its shown tokens are right; the next one runs."""
    cluster, ask = bed.cluster, Ask(dice.choice(LONG), TOKENS)  # a short log fits in the block it already has
    expected = await bed.undisturbed.of(cluster, ask)
    with _small_disk(cluster.macs[0].home.tokens, "256k"):
        cluster.forget()
        request = (await cluster.head.client.chat(ask.request)).request_id
        count = dice.randrange(1, 8)
        await cluster.head.until(lambda _: len(answer_of(cluster.heard, request).tokens) >= count, ANSWER_S, "Writing")
        filler = _fill(cluster.macs[0].home.tokens)
        await ended(cluster.head, request)
        answer = answer_of(cluster.heard, request)
        filler.unlink()
        (end,) = answer.ends
        wrong = [] if end.problem and "space" in str(end.problem) else [f"It ended with {end.problem}."]
        if answer.tokens != expected.tokens[: len(answer.tokens)] or len(answer.tokens) < count:
            wrong.append("What was shown is not the beginning of the answer.")
        after = await bed.disturb(draw("decode", dice), nothing)
    return Tried(f"token {count}", len(answer.tokens), after.times, (*wrong, *after.wrong))


@contextmanager
def _small_disk(folder: Path, size: str) -> Iterator[None]:
    """Mount a small disk of its own over `folder` for a while. Needs root."""
    private_folder(folder)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def _fill(folder: Path) -> Path:
    """Fill the disk; returns the file that does."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return filler


def _sessions_of(home: Home) -> dict[str, bytes]:
    """The saved conversations on disk."""
    return {path.name: path.read_bytes() for path in home.sessions.glob("*.mcs")}
