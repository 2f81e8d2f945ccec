"""Strongly connected components, against SciPy's, on any number of workers.

White box: the number of outer rounds, and the state that each leaves behind, show in no result.
"""

from __future__ import annotations

import datetime
import gc
import math
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import timely
from tests.graphs.running import Edges, components, expected, refused, run, table_of
from timely.graphs import components_build, propagate, strong, strongly_connected_components
from timely.graphs.propagation import Propagation


def check(edges: Edges, workers: int = 1, rows: int = 20_000) -> None:
    table = table_of(edges)
    (result,) = run([table], workers=workers, rows=rows)
    assert components(result) == expected(table)


# -- shapes ------------------------------------------------------------------------------------------------------------


def test_one_large_circle() -> None:
    check([(i, (i + 1) % 300) for i in range(300)], workers=2)


# -- rounds ------------------------------------------------------------------------------------------------------------


def chain_of_pairs(numbers: Edges) -> Edges:
    """Circles of two, each leading to the next."""
    pairs = [edge for a, b in numbers for edge in ((a, b), (b, a))]
    return pairs + [(b, c) for (_, b), (c, _) in pairwise(numbers)]


def rounds_of(edges: Edges, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often the edges that are left go round the outer loop, as their times tell; checks the components too."""
    rounds: set[int] = set()

    def tapped(edges: timely.Stream[Any, Any], seeds: timely.Stream[Any, Any], name: str) -> timely.Stream[Any, Any]:
        return propagate(edges.inspect_batch(lambda time, _: rounds.add(time.inner)), seeds, name)

    monkeypatch.setattr(strong, "propagate", tapped)
    check(edges)
    assert rounds == set(range(len(rounds)))
    return len(rounds)


CHAIN = 256
NUMBERINGS: dict[str, Edges] = {
    "upward": [(2 * i, 2 * i + 1) for i in range(CHAIN)],
    "downward": [(2 * i + 1, 2 * i) for i in reversed(range(CHAIN))],
    "from both ends": [(i, 2 * CHAIN - i) for i in range(CHAIN)],
    "shuffled": [(a, b) for a, b in np.random.default_rng(5).permutation(2 * CHAIN).reshape(-1, 2).tolist()],
}


@pytest.mark.parametrize("numbering", NUMBERINGS)
def test_few_outer_rounds_however_numbered(numbering: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert 2 <= rounds_of(chain_of_pairs(NUMBERINGS[numbering]), monkeypatch) <= 4 * math.log2(2 * CHAIN)


def test_few_outer_rounds_on_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rounds_of([(i, i + 1) for i in range(500)], monkeypatch) <= 4 * math.log2(500)


def test_state_of_a_round_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[int] = []

    def tapped(edges: timely.Stream[Any, Any], seeds: timely.Stream[Any, Any], name: str) -> timely.Stream[Any, Any]:
        def count(*_: object) -> None:
            alive.append(sum(isinstance(thing, Propagation) for thing in gc.get_objects()))

        return propagate(edges.inspect_batch(count) if name == "forward" else edges, seeds, name)

    monkeypatch.setattr(strong, "propagate", tapped)
    check(chain_of_pairs(NUMBERINGS["upward"]))
    assert len(alive) > 3
    assert set(alive) == {0}


# -- types -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "values"),
    [
        (pa.string(), ["z", "ä", "", "a b"]),
        (pa.large_string(), ["z", "y", "x", "w"]),
        (pa.binary(), [b"z", b"", b"\0", b"a"]),
        (pa.int32(), [-1, 2**31 - 1, 0, 5]),
        (pa.uint64(), [2**64 - 1, 2**63, 0, 5]),
        (pa.float64(), [0.5, -1.5, float("inf"), 2.0]),
        (pa.date32(), [datetime.date(2020 + i, 1, 1) for i in (3, 1, 0, 2)]),
        (pa.bool_(), [True, False, True, False]),
    ],
)
def test_types_of_nodes(node: pa.DataType, values: list[Any]) -> None:
    one, two, three, four = values
    table = table_of([(one, two), (two, one), (two, three), (four, four)], node)
    (result,) = run([table], workers=2, rows=2)
    assert components(result) == expected(table)
    assert result.schema == pa.schema([("node", node), ("component", node)])


def test_dictionaries_are_resolved() -> None:
    table = table_of([("a", "b"), ("b", "a")], pa.string())
    encoded = pa.table({name: table[name].dictionary_encode() for name in table.column_names})
    (result,) = run([encoded])
    assert components(result) == {"a": "a", "b": "a"}
    assert result.schema.field("node").type == pa.string()


def test_build_names_its_columns() -> None:
    table = table_of([(1, 2), (2, 1)]).rename_columns(["from", "to"])
    build = components_build("from", "to")
    (result,) = run([table], build=lambda edges: build(edges.scope, edges)["components"])
    assert components(result) == {1: 1, 2: 1}


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (table_of([(1, 2)]).rename_columns(["src", "target"]), "no column 'dst'; the edges have 'src', 'target'"),
        (table_of([(1, 2)]).rename_columns(["src", "src"]), "more than one column 'src'"),
        (table_of([(1, 2), (2, None)]), "column 'dst' has 1 nulls"),
        (pa.table({"src": [1], "dst": ["a"]}), "column 'dst' is of type string, and 'src' began with int64"),
    ],
)
def test_what_is_no_table_of_edges(table: pa.Table, message: str) -> None:
    says = refused(table, build=strongly_connected_components)
    assert "encode" in says
    assert message in says


def test_types_differ_between_workers() -> None:
    def program(worker: timely.Worker) -> None:
        with worker.dataflow(int) as scope:
            handle, edges = scope.new_input()
            strongly_connected_components(edges)
        node = pa.string() if worker.index else pa.binary()
        handle.send_batch(table_of([("a", "b"), ("b", "c")], node).to_batches()[0])
        handle.close()
        worker.run()

    with pytest.raises(timely.OperatorError) as caught:
        timely.execute(program, workers=2)
    assert isinstance(caught.value.__cause__, timely.SchemaError)


def test_not_arrow() -> None:
    with pytest.raises(timely.OperatorError, match="not as list"):
        timely.example(lambda scope: strongly_connected_components(scope.to_stream([(1, 2)])))
