"""Operators that work by record, on records that come in lists, Arrow batches and NumPy arrays at once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import timely
from tests.operators.feeding import execute, seeds, sizes
from timely import OperatorError
from timely.operators.keyed.windows import tumbling, windows

pairs = st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 30)), min_size=1, max_size=4)


def in_a_list(records: list[tuple[int, int]]) -> Any:
    return records


def in_a_batch(records: list[tuple[int, int]]) -> Any:
    return pa.record_batch({"key": [key for key, _ in records], "value": [value for _, value in records]})


def in_an_array(records: list[tuple[int, int]]) -> Any:
    return np.array(records)


BUILDS: dict[str, Any] = {
    "aggregate": lambda s: s.aggregate(lambda k, v, total: (total or 0) + v, lambda k, total: (k, total)),
    "reduce_by_key": lambda s: s.reduce_by_key(max),
    "aggregate by a key": lambda s: s.aggregate(lambda k, v, n: (n or 0) + 1, lambda k, n: (k, n), key=abs),
    "state_machine": lambda s: s.state_machine(lambda k, v, n: ((n or 0) + 1, [(k, (n or 0) + 1)])),
    "join": lambda s: s.join(s),
    "distinct": lambda s: s.map(tuple).distinct(),
    "distinct keys": lambda s: s.map_batch(lambda batch: batch if isinstance(batch, list) else first(batch)).distinct(),
    "windows": lambda s: windows(s, tumbling(10), at=lambda pair: pair[1], key=lambda pair: pair[0])[0].map(
        lambda found: (found[0], found[1].start, tuple(sorted(map(tuple, found[2]))))
    ),
}


def first(batch: Any) -> Any:
    """The keys of a batch or an array, as one of its kind."""
    return batch.select(["key"]) if isinstance(batch, pa.RecordBatch) else batch[:, 0]


@given(st.lists(st.tuples(st.sampled_from([in_a_list, in_a_batch, in_an_array]), pairs), max_size=4), sizes, seeds, st.data())
@pytest.mark.parametrize("name", [name for name in BUILDS if name != "distinct keys"])
def test_equal_keys_meet_whatever_they_came_in(
    name: str, batches: list[Any], workers: int, seed: int | None, data: st.DataObject
) -> None:
    owners = [data.draw(st.integers(0, workers - 1)) for _ in batches]

    def outcome(size: int, contained: bool) -> Counter[Any]:
        def program(worker: timely.Worker) -> Any:
            with worker.dataflow(int) as scope:
                handle, stream = scope.new_input()
                seen = BUILDS[name](stream).capture()
            for (kind, records), owner in zip(batches, owners, strict=True):
                if worker.index == owner % worker.peers:
                    handle.send_batch(kind(records) if contained else records)
            handle.close()
            worker.run()
            return Counter((time, record) for time, batch in seen.messages for record in batch)

        return sum(execute(program, size, seed if contained else None), Counter())

    assert outcome(workers, True) == outcome(1, False)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_square_arrays_are_partitioned_by_their_rows(workers: int) -> None:
    """An array of as many rows as columns is not taken for one whose first row holds the keys."""

    def program(worker: timely.Worker) -> Any:
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            seen = BUILDS["aggregate"](stream).capture()
        if worker.index == 0:
            handle.send_batch(np.array([[0, 1], [0, 2]]))
            handle.send_batch(np.array([[0, 3], [1, 4]]))
        handle.close()
        worker.run()
        return [record for _, batch in seen.extract() for record in batch]

    results = timely.execute(program, workers=workers)
    assert sorted(record for records in results for record in records) == [(0, 6), (1, 4)]


def test_one_dimensional_arrays_and_batches_of_one_column() -> None:
    def build(scope: timely.ScopeBuilder[int]) -> Any:
        return BUILDS["distinct keys"](scope.to_stream([(2, 0), (2, 1), (1, 0)]).map_batch(in_an_array))

    assert timely.example(build) == [(0, [1, 2])]
    batches = timely.example(lambda s: BUILDS["distinct keys"](s.to_stream([(2, 0), (2, 1), (1, 0)]).map_batch(in_a_batch)))
    assert batches == [(0, [(1,), (2,)])]


class Liar:
    """A container that has more records than it says."""

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Any:
        return iter([(1, 1), (2, 2)])


def test_a_container_that_cannot_count_is_refused() -> None:
    with pytest.raises(OperatorError, match="a Liar of length 1 has 2 records"):
        timely.example(lambda s: BUILDS["aggregate"](s.to_stream([1]).map_batch(lambda batch: Liar())))
