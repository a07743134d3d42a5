from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import PairingError
from core.trust.pairing_attempts import PairingAttempts
from tests.support.home_files import in_format


def test_three_count_in_any_two_minutes_whatever_lies_between_and_one_that_ended_well_does_not(tmp_path: Path) -> None:
    now = 1000.0

    def made() -> PairingAttempts:
        return PairingAttempts(tmp_path / "made.json", lambda: now)

    for _ in range(5):
        made().count()
        made().ended_well()
    for at in (1000.0, 1050.0, 1100.0):
        now = at
        made().count()
    for refused_at in (1100.0, 1119.0, 5.0):
        now = refused_at
        with pytest.raises(PairingError, match="3 attempts at pairing this Mac failed"):
            made().count()
    now = 1121.0
    made().count()
    with pytest.raises(PairingError, match="Try again in 49 s"):
        made().check()


def test_a_damaged_count_says_how_to_go_on(tmp_path: Path) -> None:
    path = tmp_path / "made.json"
    attempts = PairingAttempts(path)
    for damaged in (b"[1,", b"[]", in_format(b'["soon"]')):
        path.write_bytes(damaged)
        path.chmod(0o600)
        with pytest.raises(PairingError, match="is damaged") as refused:
            attempts.check()
        assert f"rm {path}" in refused.value.fix
