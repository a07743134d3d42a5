import pytest

from core.pairing_code import CODE_DIGITS, code_from, format_code, is_code, parse_code


@pytest.mark.parametrize("typed", ["061648", "061 648", " 0 6 1 6 4 8\n"])
def test_a_code_is_read_with_or_without_spaces(typed: str) -> None:
    assert parse_code(typed) == "061648"
    assert is_code(typed, "061648")


@pytest.mark.parametrize("typed", ["", "06164", "0616480", "06164x", "٠٦١٦٤٨", "061-648", "6¹1648"])
def test_what_is_no_code_is_none(typed: str) -> None:
    assert parse_code(typed) is None
    assert not is_code(typed, "061648")


def test_a_code_has_six_digits_whatever_it_is_drawn_from() -> None:
    assert [code_from(n.to_bytes(8, "big")) for n in (7, 61_648, 2_999_999)] == ["000007", "061648", "999999"]
    assert CODE_DIGITS == 6


def test_a_code_is_read_aloud_in_two_halves() -> None:
    assert format_code("061648") == "061 648"
