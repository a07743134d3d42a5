"""Keys of the API: shown once, kept as hashes, deleted when they are revoked."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import TrustError, UsageError
from core.trust.api_keys import MOST, ApiKeys


@pytest.mark.promise("T9")
def test_a_key_opens_until_it_is_revoked_and_lies_nowhere(tmp_path: Path) -> None:
    keys = ApiKeys(tmp_path / "keys.json")
    assert (keys.all(), keys.owner("")) == ((), None)
    one, two = keys.add("laptop", 1.0), keys.add("agent", 2.0)
    assert (keys.owner(one), keys.owner(two), keys.owner(one[:-1])) == ("laptop", "agent", None)
    assert [(key.name, key.hint) for key in keys.all()] == [("laptop", one[-4:]), ("agent", two[-4:])]
    assert one not in (tmp_path / "keys.json").read_text()
    assert (tmp_path / "keys.json").stat().st_mode & 0o777 == 0o600
    keys.revoke("laptop")
    assert (ApiKeys(tmp_path / "keys.json").owner(one), keys.owner(two)) == (None, "agent")
    with pytest.raises(UsageError, match="no key 'laptop'"):
        keys.revoke("laptop")


def test_what_cannot_be_a_key_is_refused(tmp_path: Path) -> None:
    keys = ApiKeys(tmp_path / "keys.json")
    keys.add("one", 1.0)
    for name in ("one", "", "a\nb", "x" * 65):
        with pytest.raises(UsageError):
            keys.add(name, 1.0)
    for number in range(MOST - 1):
        keys.add(str(number), 1.0, "given")
    with pytest.raises(UsageError, match="Revoke one first"):
        keys.add("more", 1.0)
    (tmp_path / "keys.json").write_text("[")
    with pytest.raises(TrustError, match="is damaged"):
        keys.owner("given")
