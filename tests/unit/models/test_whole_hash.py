"""A file is hashed while its blocks come, in any order and from several threads."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor

from hypothesis import given
from hypothesis import strategies as st

from core.models.files.block_map import BLOCK_BYTES, FileFacts
from core.models.files.block_writer import WholeHash

FACTS = FileFacts(size=8 * BLOCK_BYTES - 7, sha256="0" * 64)
BLOCKS = [bytes([number]) * FACTS.length(number) for number in FACTS.blocks]
WHOLE = b"".join(BLOCKS)
SHA256 = hashlib.sha256(WHOLE).hexdigest()


def read(block: int, into: memoryview) -> int:
    """Read as from the disk."""
    into[:] = WHOLE[block * BLOCK_BYTES :][: len(into)]
    return len(into)


@given(order=st.permutations(FACTS.blocks), threads=st.integers(1, 4))
def test_the_hash_is_that_of_the_file_in_whatever_order_its_blocks_come(order: list[int], threads: int) -> None:
    whole = WholeHash(FACTS, read)
    with ThreadPoolExecutor(threads) as pool:
        for block in order[1:]:
            pool.submit(whole.add, block, BLOCKS[block])
    assert whole.sha256 is None, "one is not there"
    whole.add(order[0], BLOCKS[order[0]])
    assert whole.sha256 == SHA256


def test_where_a_block_came_twice_nobody_knows_which_of_them_the_disk_has() -> None:
    whole = WholeHash(FACTS, read)
    for block in (*FACTS.blocks, 3):
        whole.add(block, BLOCKS[block])
    assert whole.sha256 is None


def test_what_the_disk_no_longer_has_is_not_made_up() -> None:
    whole = WholeHash(FACTS, lambda block, into: read(block, into) - 1)
    for block in reversed(FACTS.blocks):
        whole.add(block, BLOCKS[block])
    assert whole.sha256 is None
