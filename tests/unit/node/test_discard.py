"""`--discard` removes a node's folder, and no other one."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import UsageError
from core.node.process import check_discardable
from core.settings import Home


@pytest.mark.parametrize("held", [pytest.param((), id="empty"), pytest.param(("node.stderr", "models"), id="begun")])
def test_a_new_home_may_be_discarded(tmp_path: Path, held: tuple[str, ...]) -> None:
    check_discardable(Home(tmp_path / "none"))
    for name in held:
        (tmp_path / name).touch()
    check_discardable(Home(tmp_path))


def test_a_folder_of_other_files_is_not_discarded(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(UsageError, match=r"it holds thesis\.txt"):
        check_discardable(Home(tmp_path))
    (tmp_path / "identity").mkdir()
    check_discardable(Home(tmp_path))
