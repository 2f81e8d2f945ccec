"""Change batches: the exact results, and that they add up."""

from __future__ import annotations

import random
from collections import Counter
from unittest.mock import ANY

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely.progress import ChangeBatch

UPDATES = st.lists(st.tuples(st.integers(0, 4), st.integers(-3, 3)), max_size=20)


def test_C1_new_and_clear() -> None:
    assert ChangeBatch[int]().is_empty()
    batch = ChangeBatch([(17, 1)])
    assert not batch.is_empty()
    batch.clear()
    assert batch.is_empty()


def test_C2_cancelling() -> None:
    batch: ChangeBatch[int] = ChangeBatch()
    batch.update(17, 1)
    assert not batch.is_empty()
    batch.extend([(17, -1)])
    assert batch.is_empty()
    batch.update(17, 1)
    batch.update(17, -1)
    assert batch.is_empty()


def test_C3_reading_and_draining() -> None:
    batch = ChangeBatch([(17, 1)])
    assert list(batch) == [(17, 1)]
    assert not batch.is_empty()
    assert batch.drain() == [(17, 1)]
    assert batch.is_empty()


def test_C4_len_is_consolidated() -> None:
    assert len(ChangeBatch([(17, 1), (17, -1), (14, -1)])) == 1


def test_C5_drain_into() -> None:
    first, second = ChangeBatch([(17, 1)]), ChangeBatch[int]()
    first.drain_into(second)
    assert first.is_empty()
    assert not second.is_empty()


def test_C6_zero_is_nothing() -> None:
    batch: ChangeBatch[int] = ChangeBatch()
    batch.update(17, 0)
    assert batch.is_empty()
    assert len(batch) == 0


def test_drain_into_itself() -> None:
    batch = ChangeBatch([(17, 1)])
    batch.drain_into(batch)
    assert list(batch) == [(17, 1)]


def test_it_is_no_key_and_equal_to_no_other_type() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(ChangeBatch[int]())
    assert ChangeBatch([(1, 1)]) != [(1, 1)]
    assert (ChangeBatch([(1, 1)]) == [(1, 1)]) is False
    assert ChangeBatch([(1, 1)]) == ANY


@given(updates=UPDATES, more=UPDATES, seed=st.integers(0, 100))
def test_T3_sums(updates: list[tuple[int, int]], more: list[tuple[int, int]], seed: int) -> None:
    sums: Counter[int] = Counter()
    for key, diff in updates:
        sums[key] += diff
    batch = ChangeBatch(updates)
    assert dict(batch) == {key: total for key, total in sums.items() if total}
    assert len(batch) == len(dict(batch)) == len(list(batch))
    assert ChangeBatch(batch) == batch
    shuffled = updates.copy()
    random.Random(seed).shuffle(shuffled)
    assert ChangeBatch(shuffled) == batch
    other = ChangeBatch(more)
    batch.drain_into(other)
    assert batch.is_empty()
    assert other == ChangeBatch([*updates, *more])
