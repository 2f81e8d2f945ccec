"""Arrays of every shape are partitioned row by row, whether the rows of few workers are searched or those of many are sorted.

White box: few workers and many take different paths to one result, so the limit between them is moved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely.dataflow.containers import partition_arrays
from timely.dataflow.containers.partition_arrays import partition_array

numbers = st.lists(st.integers(0, 2**40), max_size=30).map(lambda values: np.array(values, np.int64))

SHAPES: dict[str, Callable[[npt.NDArray[np.int64]], npt.NDArray[Any]]] = {
    "a column": lambda keys: keys,
    "short numbers": lambda keys: keys.astype(np.int16),
    "columns": lambda keys: np.vstack((keys, keys + 1)).T,
    "rows": lambda keys: np.ascontiguousarray(np.vstack((keys, keys + 1)).T),
    "every other": lambda keys: np.repeat(keys, 2)[::2],
    "backwards": lambda keys: keys[::-1],
    "fields": lambda keys: np.array([(key, key / 2) for key in keys.tolist()], [("a", np.int64), ("b", np.float64)]),
    "objects": lambda keys: np.array([*map(str, keys), None], object)[:-1],
    "texts": lambda keys: keys.astype(str),
    "cubes": lambda keys: np.repeat(keys, 4).reshape(-1, 2, 2),
    "columns of columns": lambda keys: np.asfortranarray(np.repeat(keys, 4).reshape(-1, 2, 2)),
}


@pytest.mark.parametrize("shape", SHAPES)
@given(numbers, st.integers(2, 12), st.sampled_from([0, 9]))
def test_every_row_goes_to_its_worker_in_order(shape: str, keys: npt.NDArray[np.int64], workers: int, few: int) -> None:
    batch = SHAPES[shape](keys)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition_arrays, "_FEW", few)
        parts = partition_array(batch, lambda _: keys, workers)
    assert [worker for worker, _ in parts] == sorted(set((keys % workers).tolist()))
    for worker, part in parts:
        np.testing.assert_array_equal(part, batch[keys % workers == worker])
        assert part.dtype == batch.dtype


def test_masks_stay() -> None:
    batch = np.ma.array([1, 2, 3, 4], mask=[True, False, False, True])
    parts = dict(partition_array(batch, lambda _: np.array([0, 1, 0, 1]), 2))
    assert [part.tolist() for part in parts.values()] == [[None, 3], [2, None]]


def test_what_goes_to_one_worker_is_not_copied() -> None:
    for batch in (np.array([3, 1, 5]), np.zeros((2, 3)).T):
        [(worker, part)] = partition_array(batch, lambda _: np.array([3, 1, 5]), 2)
        assert (worker, part is batch) == (1, True)


def test_columns_stay_columns() -> None:
    """Parts of columns that lie one after the other lie so, too."""
    batch: npt.NDArray[Any] = np.arange(8).reshape(2, 4).T
    assert all(part.flags.f_contiguous for _, part in partition_array(batch, lambda array: array[:, 0], 2))
