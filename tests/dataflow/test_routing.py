"""Routing: which worker a key belongs to, the same in every container; and partitioning, which loses and reorders nothing."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely import Exchange, RoutingError
from timely.dataflow import route, route_column

WORKERS = st.integers(1, 7)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(max_size=8)


def identity(key: Any) -> Any:
    return key


@given(st.lists(INT64), WORKERS)
def test_whole_numbers_go_to_the_same_worker_in_every_container(keys: list[int], workers: int) -> None:
    by_list = {key: worker for worker, part in Exchange(identity).parts(0, keys, workers) for key in part}
    assert by_list == {key: key % workers for key in keys}
    batch = pa.record_batch({"k": pa.array(keys, pa.int64())})
    by_arrow = {key: worker for worker, part in Exchange("k").parts(0, batch, workers) for key in part["k"].to_pylist()}
    array = np.array(keys, dtype=np.int64)
    by_numpy = {key: worker for worker, part in Exchange(identity).parts(0, array, workers) for key in part.tolist()}
    assert by_arrow == by_numpy == by_list


@given(st.lists(st.integers(0, 2**64 - 1) | st.none()), WORKERS)
def test_unsigned_numbers_and_nulls_go_where_lists_take_them(keys: list[int | None], workers: int) -> None:
    numbers = route_column(pa.array(keys, pa.uint64()))
    assert [int(number) % workers for number in numbers] == [route(key) % workers for key in keys]


DICTIONARIES = [pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int32(), pa.binary())]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), *DICTIONARIES])
@given(keys=st.lists(TEXT | st.none(), max_size=20))
def test_text_goes_to_the_same_worker_in_every_container(kind: Any, keys: list[str | None]) -> None:
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    given_keys: list[Any] = [k.encode() if k is not None and value == pa.binary() else k for k in keys]
    column = pa.array(given_keys, value)
    column = column.dictionary_encode() if pa.types.is_dictionary(kind) else column
    assert route_column(column).tolist() == [route(key) for key in keys]


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint8(), pa.int16(), pa.int32(), pa.uint32(), pa.int64(), pa.bool_()])
def test_narrow_numbers_with_and_without_nulls(kind: Any) -> None:
    keys = [True, False, True] if kind == pa.bool_() else [1, 0, 100]
    assert route_column(pa.array(keys, kind)).tolist() == [route(key) for key in keys]
    assert route_column(pa.array([*keys, None], kind)).tolist() == [*[route(key) for key in keys], 0]
    assert route_column(pa.array(keys, kind).slice(1)).tolist() == [route(key) for key in keys[1:]]
    assert route_column(pa.array([], kind)).tolist() == []


@given(st.lists(st.tuples(INT64 | TEXT, INT64)), WORKERS)
def test_dealing_a_list_loses_nothing_and_keeps_the_order(records: list[tuple[Any, int]], workers: int) -> None:
    parts = Exchange(lambda record: record[0]).parts(0, records, workers)
    assert [worker for worker, _ in parts] == sorted({worker for worker, _ in parts})
    if workers > 1:
        assert all(part for _, part in parts)
    for worker, part in parts:
        assert part == [record for record in records if route(record[0]) % workers == worker]
    assert sum(len(part) for _, part in parts) == len(records)


@given(st.lists(st.tuples(st.integers(-5, 5) | st.none(), TEXT | st.none())), WORKERS, st.integers(0, 3))
def test_dealing_a_slice_of_a_batch_loses_nothing_and_keeps_the_order(rows: list[Any], workers: int, start: int) -> None:
    whole = pa.record_batch({"k": pa.array([k for k, _ in rows], pa.int64()), "v": pa.array([v for _, v in rows], pa.string())})
    batch = whole.slice(start)
    for worker, part in Exchange("k").parts(0, batch, workers):
        expected = [row for row in rows[start:] if route(row[0]) % workers == worker]
        assert list(zip(part["k"].to_pylist(), part["v"].to_pylist())) == expected
    assert sum(len(part) for _, part in Exchange("k").parts(0, batch, workers)) == len(rows[start:])


@given(WORKERS)
def test_arrays_of_rows_and_of_records(workers: int) -> None:
    rows = np.arange(40).reshape(20, 2)
    for worker, part in Exchange(lambda a: a[:, 1]).parts(0, rows, workers):
        assert (part[:, 1] % workers == worker).all()
        assert part.shape[1:] == (2,)
    records = np.array([(i, i / 2) for i in range(9)], dtype=[("k", "i4"), ("x", "f8")])
    for worker, part in Exchange("k").parts(0, records, workers):
        assert part["k"].tolist() == [i for i in range(9) if i % workers == worker]


@pytest.mark.parametrize("workers", [2, 3, 16, 17, 40])
def test_columns_are_partitioned_as_lists_are_among_few_workers_and_many(workers: int) -> None:
    records = [(number * 7919 - 3000, number) for number in range(500)]
    expected = Exchange(lambda record: record[0]).parts(0, records, workers)
    keys, numbers = (np.array(column) for column in zip(*records, strict=True))
    by_arrow = Exchange("k").parts(0, pa.record_batch({"k": keys, "n": numbers}), workers)
    assert [(worker, list(zip(*part.to_pydict().values(), strict=True))) for worker, part in by_arrow] == expected
    for table in (np.array(records), np.asfortranarray(records)):
        by_numpy = Exchange(lambda array: array[:, 0]).parts(0, table, workers)
        assert [(worker, list(map(tuple, part.tolist()))) for worker, part in by_numpy] == expected


def test_one_worker_refuses_the_keys_that_several_refuse() -> None:
    lists: list[Any] = [[1, "a", 1.5j], [None, (1, 2.5j)], [object()]]
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


@pytest.mark.parametrize("key", [1.5j, [1], {"a": 1}, object(), (1, 2.5j), frozenset([object()])])
def test_keys_that_cannot_be_routed(key: Any) -> None:
    with pytest.raises(RoutingError, match=r"a number, a string, bytes, .* or a tuple.*: give key=, a function"):
        route(key)


def test_arrays_with_keys_that_cannot_be_routed() -> None:
    for key in (lambda a: a * 1j, lambda a: a[:1], lambda a: 3):
        with pytest.raises(RoutingError, match="one number for each of its rows"):
            Exchange(key).parts(0, np.arange(4), 2)
    with pytest.raises(RoutingError, match="column of type list.* cannot be a key"):
        Exchange("k").parts(0, pa.record_batch({"k": [[1]]}), 2)
    with pytest.raises(RoutingError, match="container of type str"):
        Exchange(identity).parts(0, "text", 2)


def test_numpy_scalars_are_whole_numbers() -> None:
    assert [route(np.int64(-3)), route(np.uint8(7)), route(True)] == [-3, 7, 1]


def test_routes_do_not_depend_on_the_process() -> None:
    keys = "['abc', b'abc', ('x', 1), 'é', -5, None]"
    program = f"from timely.dataflow import route; print([route(key) for key in {keys}])"
    for seed in ("1", "2"):
        env = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}
        done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
        assert done.stdout == f"{[route(key) for key in eval(keys)]}\n"
