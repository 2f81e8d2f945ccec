"""Routing: which worker a key belongs to, the same in every container; and partitioning, which loses and reorders nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely import Exchange, RoutingError
from timely.dataflow import route

WORKERS = st.integers(1, 7)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(max_size=8)


def identity(key: Any) -> Any:
    return key


@given(st.lists(st.tuples(INT64 | TEXT, INT64)), WORKERS)
def test_partitioning_a_list_loses_nothing_and_keeps_the_order(records: list[tuple[Any, int]], workers: int) -> None:
    parts = Exchange(lambda record: record[0]).parts(0, records, workers)
    assert [worker for worker, _ in parts] == sorted({worker for worker, _ in parts})
    if workers > 1:
        assert all(part for _, part in parts)
    for worker, part in parts:
        assert part == [record for record in records if route(record[0]) % workers == worker]
    assert sum(len(part) for _, part in parts) == len(records)


@given(WORKERS)
def test_arrays_of_rows_and_of_records(workers: int) -> None:
    rows = np.arange(40).reshape(20, 2)
    for worker, part in Exchange(lambda a: a[:, 1]).parts(0, rows, workers):
        assert (part[:, 1] % workers == worker).all()
        assert part.shape[1:] == (2,)
    records = np.array([(i, i / 2) for i in range(9)], dtype=[("k", "i4"), ("x", "f8")])
    for worker, part in Exchange("k").parts(0, records, workers):
        assert part["k"].tolist() == [i for i in range(9) if i % workers == worker]


def test_one_worker_refuses_the_keys_that_several_refuse() -> None:
    lists: list[Any] = [[1, "a", 1.5j], [None, (1, 2.5j)], [object()], [(1, ("a", (2, 1.5j))), 3]]
    for records in lists:
        for workers in (1, 2):
            with pytest.raises(RoutingError):
                Exchange(identity).parts(0, records, workers)
    columns: list[Any] = [np.array([1.5j]), np.array([1, 1.5j, None], object)]
    for array in columns:
        for workers in (1, 2):
            with pytest.raises(RoutingError):
                Exchange(identity).parts(0, array, workers)
    for workers in (1, 2):
        with pytest.raises(RoutingError, match="column of type list.* cannot be a key"):
            Exchange("k").parts(0, pa.record_batch({"k": [[1]]}), workers)


def test_numpy_scalars_are_whole_numbers() -> None:
    assert [route(np.int64(-3)), route(np.uint8(7)), route(True)] == [-3, 7, 1]
