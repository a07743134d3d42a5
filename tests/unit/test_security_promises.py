"""Each promise of SECURITY.md has a test, and tests/PROMISES.md lists it."""

from __future__ import annotations

from tests.promises import ACCEPTED, TABLE, promises, proofs, table


def test_every_promise_has_a_test_and_every_marker_a_promise() -> None:
    promised = promises()
    assert len(promised) == len(set(promised)) == 56
    assert {promise for proof in proofs() for promise in proof.promises} == set(promised) - ACCEPTED


def test_the_table_is_up_to_date() -> None:
    assert TABLE.read_text("utf-8") == table(), "run python -m tests.promises --write"
