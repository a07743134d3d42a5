import re
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from core.text import NAME_LIMIT, clean_line, clean_name, clean_text

FORBIDDEN = {*range(0x20), 0x7F, *range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F}
hostile = st.text(
    st.one_of(
        st.characters(), st.sampled_from([chr(c) for c in sorted(FORBIDDEN)] + list("\u2028\u2029\u200d\ufe0f[]m;?\\"))
    )
)


@given(hostile)
def test_clean_text_leaves_no_control_and_no_bidi(raw: str) -> None:
    assert not {ord(c) for c in clean_text(raw)} & (FORBIDDEN - {0x09, 0x0A})
    assert not {ord(c) for c in clean_line(raw)} & FORBIDDEN


@given(hostile)
def test_a_line_of_clean_text_ends_with_a_newline_and_with_nothing_else(raw: str) -> None:
    assert clean_text(raw).splitlines(keepends=True) == re.findall(r"[^\n]*\n|[^\n]+", clean_text(raw))


@given(hostile)
def test_clean_text_is_idempotent(raw: str) -> None:
    assert clean_text(clean_text(raw)) == clean_text(raw)


@given(hostile)
def test_clean_name_is_idempotent_short_and_harmless(raw: str) -> None:
    name = clean_name(raw)
    if name is None:
        return
    assert 1 <= len(name) <= NAME_LIMIT
    assert all(unicodedata.category(c)[0] in "LMNPS" or unicodedata.category(c) == "Zs" for c in name)
    assert clean_name(name) == name


def test_a_name_that_is_no_utf8_is_dropped() -> None:
    assert clean_name(b"studio\x9b2J") is None


def test_an_escape_sequence_loses_its_escape() -> None:
    assert clean_text("a\x1b]52;c;AAAA\x1b\\b") == "a]52;c;AAAA\\b"
    assert clean_name("\x1b[31mstudio\u202e") == "[31mstudio"
