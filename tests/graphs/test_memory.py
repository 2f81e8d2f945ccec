"""Graph algorithms with a memory budget that nothing fits into: the same rows as without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

import timely
from timely import graphs
from timely.errors import OutOfMemoryError, SpillError
from timely.memory import MemoryBudget

ALGORITHMS: dict[str, dict[str, Any]] = {
    "pagerank": {"rounds": 5},
    "connected_components": {},
    "strongly_connected_components": {},
    "breadth_first_search": {"source": 0},
    "shortest_paths": {"source": 0},
    "label_propagation": {},
    "triangle_count": {},
}

Ends = npt.NDArray[np.int64]


def ends_of(nodes: int, edges: int) -> Ends:
    return np.random.default_rng(1).integers(0, nodes, (2, edges))


def column(numbers: Ends, kind: str) -> pa.Array:
    return pa.array(numbers) if kind == "int64" else pa.array([f"n{number}" for number in numbers])


def rows_of(
    algorithm: str, ends: Ends, memory: MemoryBudget | None, workers: int, epochs: int = 1, kind: str = "int64", **options: Any
) -> dict[int, pa.Table]:
    """Return the rows of each time, by node."""
    edges = pa.record_batch({"src": column(ends[0], kind), "dst": column(ends[1], kind), "weight": ends[0] % 7})
    size = -(-len(edges) // epochs)

    def program(worker: timely.Worker) -> list[tuple[int, pa.RecordBatch]]:
        with worker.dataflow(int) as scope:
            handle, stream = scope.new_input()
            captured = getattr(graphs, algorithm)(stream, **options).capture()
        for epoch in range(epochs):
            some = edges.slice(epoch * size, size)
            for start in range(worker.index * 500, len(some), worker.peers * 500):
                handle.send_batch(some.slice(start, 500))
            handle.advance_to(epoch + 1)
        handle.close()
        worker.run()
        messages: list[tuple[int, pa.RecordBatch]] = captured.messages
        return messages

    batches: dict[int, list[pa.RecordBatch]] = {}
    for messages in timely.execute(program, workers=workers, memory=memory):
        for time, batch in messages:
            if len(batch):
                batches.setdefault(time, []).append(batch)
    return {time: pa.Table.from_batches(some).sort_by("node") for time, some in sorted(batches.items())}


def assert_same(outputs: dict[int, pa.Table], expected: dict[int, pa.Table]) -> None:
    assert list(outputs) == list(expected)
    for time, table in expected.items():
        assert outputs[time].column_names == table.column_names
        assert outputs[time].column(0).equals(table.column(0))
        if pa.types.is_floating(table.column(1).type):
            assert np.allclose(outputs[time].column(1), table.column(1), rtol=1e-12)
        else:
            assert outputs[time].column(1).equals(table.column(1))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_rows_are_the_same_when_all_goes_to_disk(algorithm: str) -> None:
    options = ALGORITHMS[algorithm]
    expected = rows_of(algorithm, ends_of(900, 2000), None, 1, epochs=2, **options)
    budget = MemoryBudget(1)
    assert_same(rows_of(algorithm, ends_of(900, 2000), budget, 2, epochs=2, **options), expected)
    assert budget.written > 10_000


@pytest.mark.parametrize("algorithm", ["pagerank", "connected_components"])
@pytest.mark.parametrize("limit", [1, 1 << 30])
def test_rows_are_the_same_for_strings(algorithm: str, limit: int) -> None:
    options = {"rounds": 3} if algorithm == "pagerank" else {}
    expected = rows_of(algorithm, ends_of(500, 1000), None, 1, kind="string", **options)
    assert_same(rows_of(algorithm, ends_of(500, 1000), MemoryBudget(limit), 3, kind="string", **options), expected)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_components_that_merge_in_later_times_get_the_name_of_the_smallest_node(workers: int) -> None:
    path = np.arange(1, 400)
    order = np.random.default_rng(2).permutation(len(path))
    ends = np.vstack((path[order], path[order] - 1))
    expected = rows_of("connected_components", ends, None, 1, epochs=4)
    assert_same(rows_of("connected_components", ends, MemoryBudget(1), workers, epochs=4), expected)
    assert len(expected) == 4


def test_nothing_is_left_in_the_budget_when_a_run_is_over() -> None:
    budget = MemoryBudget(100_000)
    rows_of("pagerank", ends_of(500, 5000), budget, 2, rounds=2)
    import gc

    gc.collect()
    assert (budget.used, budget.on_disk) == (0, 0)
    assert budget.written > 0


def test_too_little_memory_is_an_error_that_says_what_to_set() -> None:
    def finish(info: timely.OperatorInfo, _: object, collected: list[Any]) -> list[Any]:
        raise MemoryError("no room for an array")

    def build(scope: timely.ScopeBuilder[int]) -> timely.Stream[int, Any]:
        numbers = scope.to_stream([1, 2, 3])
        return graphs.gather("summing", [(numbers, timely.Pipeline)], 1, finish)[0]

    with pytest.raises(OutOfMemoryError, match=r"'summing'.*after 3 rows.*no room for an array.*memory=.*more workers") as raised:
        timely.example(build)
    assert isinstance(raised.value, MemoryError)
    assert raised.value.name == "summing"


def test_a_full_disk_ends_a_run_with_an_error_that_names_the_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: Path("/dev/full").open("r+b", buffering=0))  # noqa: SIM115
    with pytest.raises(timely.OperatorError, match="No space left") as raised:
        rows_of("pagerank", ends_of(500, 1000), MemoryBudget(1), 1)
    assert isinstance(raised.value.__cause__, SpillError)
