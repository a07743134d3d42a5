"""The rules for all tests."""

from __future__ import annotations

import getpass
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import pytest_configure

MOST_BYTES = 103  # of a socket's path on a Mac
IN_A_TEST = "popen-gw10/test_a_name_that_is_cut_by_pyt0/0/node.sock"


@pytest.mark.parametrize(
    ("temporary", "user"),
    [
        pytest.param("/private/var/folders/zz/zyxvpxvq6csfxvn_n0000000000000/T", "ada", id="a Mac's folder"),
        pytest.param("/private/tmp", "firstname.of-a-person.lastname", id="a long name"),
        pytest.param("/tmp", "ada", id="short"),
    ],
)
def test_a_socket_fits_into_the_folder_of_every_test(
    temporary: str, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: user)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: temporary)
    cleanups: list[Any] = []
    config: Any = SimpleNamespace(option=SimpleNamespace(basetemp=None), add_cleanup=cleanups.append)
    pytest_configure(config)
    root = config.option.basetemp or f"{temporary}/pytest-of-{user}/pytest-999"
    assert len(str(Path(root, IN_A_TEST))) <= MOST_BYTES
    for remove in cleanups:
        remove()
        assert not Path(root).exists()
