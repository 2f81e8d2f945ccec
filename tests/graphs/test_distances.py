"""Breadth-first search and shortest paths, against NetworkX's, on any number of workers, while edges keep coming."""

from __future__ import annotations

import datetime
import decimal
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import timely
from tests.graphs.running import Weighted, answers, nearest, run, table_of
from timely.graphs import breadth_first_search, shortest_paths

START = 7


def weighted(edges: Weighted, node: pa.DataType | None = None) -> pa.Table:
    """Edges with weights as a table."""
    table = table_of([edge[:2] for edge in edges], node)
    return table.append_column("weight", pa.array([edge[2] for edge in edges], pa.float64()))


@pytest.mark.parametrize("workers", [1, 2])
def test_steps_along_a_grid(workers: int) -> None:
    size = 40
    edges = [((i, j), (i + 1, j)) for i in range(size - 1) for j in range(size)]
    edges += [((j, i), (j, i + 1)) for i in range(size - 1) for j in range(size)]
    table = table_of([(a * size + b, c * size + d) for (a, b), (c, d) in edges])
    (states,) = answers(run([table], build=lambda edges: breadth_first_search(edges, 0), workers=workers, rows=70))
    assert states == {i * size + j: i + j for i in range(size) for j in range(size)}


@pytest.mark.parametrize("workers", [1, 2])
def test_weights_that_differ_much(workers: int) -> None:
    random = np.random.default_rng(11)
    ends, weights = random.integers(0, 300, (2, 2000)), 10 ** random.uniform(-3, 3, 2000)
    edges = [(int(a), int(b), float(w)) for a, b, w in zip(*ends, weights)]
    (states,) = answers(run([weighted(edges)], build=lambda edges: shortest_paths(edges, START), workers=workers, rows=99))
    expected = nearest(edges, START)
    assert states.keys() == expected.keys()
    assert all(states[node] == pytest.approx(expected[node], rel=1e-12) for node in expected)


def test_a_source_that_comes_later() -> None:
    epochs = [[("b", "c", 1.0)], [("c", "d", 1.0)], [("a", "b", 0.0)]]
    states = answers(run([weighted(edges, pa.string()) for edges in epochs], build=lambda edges: shortest_paths(edges, "a")))
    assert states == [{}, {}, {"a": 0.0, "b": 0.0, "c": 1.0, "d": 2.0}]


def test_weights_of_whole_numbers_in_a_column_of_another_name() -> None:
    table = pa.table({"from": [1, 2], "to": [2, 3], "km": pa.array([3, 4], pa.int16())})
    (states,) = answers(run([table], build=lambda edges: shortest_paths(edges, 1, "from", "to", "km")))
    assert states == {1: 0.0, 2: 3.0, 3: 7.0}


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (pa.array([1.0, -0.5]), "has the weight -0.5"),
        (pa.array([1.0, float("nan")]), "has the weight nan"),
        (pa.array([float("inf"), 1.0]), "has the weight inf"),
        (pa.array([1.0, None]), "column 'weight' has 1 nulls"),
        (pa.array(["1", "2"]), "a weight must be a number"),
    ],
)
def test_weights_that_cannot_be(weight: pa.Array, message: str) -> None:
    table = table_of([(1, 2), (2, 3)]).append_column("weight", weight)
    with pytest.raises(timely.OperatorError, match=message) as caught:
        run([table], build=lambda edges: shortest_paths(edges, 1))
    assert isinstance(caught.value.__cause__, timely.SchemaError)


def test_a_source_of_another_type() -> None:
    with pytest.raises(timely.OperatorError, match="source is 'a', and the nodes in column 'src' are of type int64") as caught:
        run([table_of([(1, 2)])], build=lambda edges: breadth_first_search(edges, "a"))
    assert isinstance(caught.value.__cause__, timely.SchemaError)


SECOND = datetime.timedelta(seconds=1)
DAY = datetime.datetime(1970, 1, 1)
SHIFTED = datetime.timezone(datetime.timedelta(hours=1))


def values_of(kind: pa.DataType) -> list[Any]:
    """Two values of a type."""
    if pa.types.is_string(kind):
        return ["1", "2"]
    return [decimal.Decimal(n) for n in (1, 2)] if pa.types.is_decimal(kind) else [1, 2]


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        (1.5, pa.int64()),
        (None, pa.int64()),
        (None, pa.string()),
        (None, pa.float64()),
        (math.nan, pa.int64()),
        (decimal.Decimal("1.5"), pa.int32()),
        (2**53 + 1, pa.float64()),
        (1e300, pa.float32()),
        (decimal.Decimal("1.555"), pa.decimal128(5, 2)),
        (DAY + 1.5 * SECOND, pa.timestamp("s")),
        (datetime.datetime(9999, 1, 1, 0, 0, 1, 5), pa.timestamp("s")),
        (1, pa.timestamp("s")),
        (DAY + SECOND, pa.date32()),
        (DAY + SECOND, pa.date64()),
        (1.5 * SECOND, pa.duration("s")),
        (1.7, pa.duration("s")),
        (np.timedelta64(1500, "ms"), pa.duration("s")),
        (datetime.time(1, 2, 3, 4), pa.time32("s")),
        (pa.scalar(1.5), pa.int64()),
        (pa.scalar(None, pa.int64()), pa.int64()),
    ],
)
def test_a_source_that_is_not_the_same_as_a_node_is_refused(source: Any, kind: pa.DataType) -> None:
    one, two = values_of(kind)
    table = pa.table({"src": pa.array([one], kind), "dst": pa.array([two], kind)})
    with pytest.raises(timely.OperatorError, match="the source is .*, and the nodes in column 'src' are of type") as caught:
        run([table], build=lambda edges: breadth_first_search(edges, source))
    assert isinstance(caught.value.__cause__, timely.SchemaError)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("source", "kind", "values"),
    [
        (math.nan, pa.float64(), [math.nan, 1.0]),
        (np.float64("nan"), pa.float32(), [math.nan, 1.0]),
        (math.inf, pa.float32(), [math.inf, 1.0]),
        (0.1, pa.float32(), [0.1, 0.2]),
        (1, pa.float64(), [1.0, 2.0]),
        (1.0, pa.int64(), [1, 2]),
        (np.int64(1), pa.int8(), [1, 2]),
        (2**64 - 1, pa.uint64(), [2**64 - 1, 2]),
        (decimal.Decimal("1.5"), pa.decimal128(5, 2), [decimal.Decimal("1.50"), decimal.Decimal(2)]),
        (SECOND, pa.duration("s"), [SECOND, 2 * SECOND]),
        (SECOND, pa.duration("ns"), [SECOND, 2 * SECOND]),
        (np.timedelta64(1, "s"), pa.duration("s"), [SECOND, 2 * SECOND]),
        (1000 * 365 * 86400 * SECOND, pa.duration("s"), [1000 * 365 * 86400 * SECOND, SECOND]),
        (DAY + SECOND, pa.timestamp("s"), [DAY + SECOND, DAY]),
        (DAY + SECOND, pa.timestamp("us", "UTC"), [DAY + SECOND, DAY]),
        ((DAY + 3600 * SECOND).replace(tzinfo=SHIFTED), pa.timestamp("s"), [DAY, DAY + SECOND]),
        (datetime.datetime(9999, 1, 1), pa.timestamp("s"), [datetime.datetime(9999, 1, 1), DAY]),
        (np.datetime64(1, "ns"), pa.timestamp("ns"), [np.datetime64(1, "ns"), np.datetime64(2, "ns")]),
        (DAY.date(), pa.date32(), [DAY.date(), datetime.date(1970, 1, 2)]),
        (datetime.time(1, 2, 3), pa.time32("s"), [datetime.time(1, 2, 3), datetime.time(0)]),
        (b"a", pa.string(), ["a", "b"]),
        ("a", pa.large_binary(), [b"a", b"b"]),
        (b"ab", pa.binary(2), [b"ab", b"cd"]),
        (True, pa.bool_(), [True, False]),
        (pa.scalar(1), pa.int64(), [1, 2]),
    ],
)
def test_a_source_that_is_a_node_is_found(source: Any, kind: pa.DataType, values: list[Any], workers: int) -> None:
    nodes = pa.array(values, kind)
    table = pa.table({"src": nodes[:1], "dst": nodes[1:]})
    (result,) = run([table], build=lambda edges: breadth_first_search(edges, source), workers=workers)
    nearer, farther = result.sort_by("distance")["node"].combine_chunks().cast(pa.string()).to_pylist()
    assert (nearer, farther) == tuple(nodes.cast(pa.string()).to_pylist())
    assert sorted(result["distance"].to_pylist()) == [0, 1]
