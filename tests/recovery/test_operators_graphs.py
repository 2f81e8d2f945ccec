"""Graph algorithms that are cut at any boundaries and go on elsewhere give what they give without a cut.

White box: the algorithms that run in steps are in modules of their own, and not among the names of ``timely.graphs``.
"""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.recovery.cutting import EPOCHS, Cut, cuts, run
from timely import graphs
from timely.graphs.graphframes.pregel.peeling import k_core

Edges = list[list[tuple[int, list[tuple[int, int]]]]]

pairs = st.tuples(st.integers(0, 9), st.integers(0, 9))
batches = st.tuples(st.integers(0, 2), st.lists(pairs, min_size=1, max_size=6))
edges = st.lists(st.lists(batches, max_size=3), min_size=EPOCHS, max_size=EPOCHS)


def _batches(batches: Edges, kind: str) -> list[list[tuple[int, Any]]]:
    """The edges as Arrow batches, between whole numbers or names."""

    def column(ends: list[int]) -> pa.Array:
        return pa.array(ends, pa.int64()) if kind == "numbers" else pa.array([f"n{end}" for end in ends])

    def batch(pairs: list[tuple[int, int]]) -> pa.RecordBatch:
        weights = [1.0 + (3 * a + b) % 4 for a, b in pairs]
        return pa.record_batch({"src": column([a for a, _ in pairs]), "dst": column([b for _, b in pairs]), "weight": weights})

    return [[(later, batch(pairs)) for later, pairs in sent] for sent in batches]


def _ranked(scope: Any, stream: Any) -> Any:
    ranks = graphs.pagerank(stream, rounds=3)
    return ranks.map(lambda row: (row[0], int(row[1] * 1e7 / math.pi)))  # which no rank comes near a border of


def _pregel(scope: Any, stream: Any) -> Any:
    pairs = stream.flat_map(lambda row: [(row[0], row[1])])
    nodes = pairs.flat_map(lambda pair: list(pair)).distinct().map(lambda node: (node, node))

    def least(vertex: Any, messages: list[Any]) -> Any:
        state = min([vertex.state, *messages])
        seen = vertex.superstep == 0 or state < vertex.state
        return state, [(target, state) for target in vertex.edges if seen]

    return graphs.pregel(nodes, pairs, least, min)


def _cores(scope: Any, stream: Any) -> Any:
    """A program in steps."""
    nodes = stream.flat_map(lambda row: [row[0], row[1]]).distinct()
    return k_core(stream, nodes.map_batch(lambda batch: pa.record_batch({"node": list(batch)})))


def _encoded(scope: Any, stream: Any) -> Any:
    """The names of a lasting dictionary: each node is named once."""
    _, names = graphs.encode(stream, lasting=True)
    return names.map(lambda row: row[1])


BUILDS: dict[str, Any] = {
    "connected_components": lambda stream, source: graphs.connected_components(stream),
    "triangle_count": lambda stream, source: graphs.triangle_count(stream),
    "shortest_paths": lambda stream, source: graphs.shortest_paths(stream, source),
    "breadth_first_search": lambda stream, source: graphs.breadth_first_search(stream, source),
    "strongly_connected_components": lambda stream, source: graphs.strongly_connected_components(stream),
    "label_propagation": lambda stream, source: graphs.label_propagation(stream),
    "pagerank": lambda stream, source: _ranked(None, stream),
    "pregel": lambda stream, source: _pregel(None, stream),
    "encode": lambda stream, source: _encoded(None, stream),
}

IN_STEPS: dict[str, Any] = {"k_core": lambda stream, source: _cores(None, stream)}
"""A checkpoint is between two times, never in the middle of a program."""


@pytest.mark.parametrize("name", [*BUILDS, *IN_STEPS])
@given(batches=edges, cuts=cuts, workers=st.integers(1, 3), compact=st.booleans(), kind=st.sampled_from(["numbers", "names"]))
@settings(max_examples=5)
def test_a_graph_algorithm_that_is_cut_gives_what_it_gives_without(
    name: str, batches: Edges, cuts: list[Cut], workers: int, compact: bool, kind: str
) -> None:
    sent = _batches(batches, kind)

    def build(scope: Any, stream: Any) -> Any:
        return {**BUILDS, **IN_STEPS}[name](stream, 3 if kind == "numbers" else "n3")

    assert run(build, sent, cuts=cuts, workers=workers, compact=compact) == run(build, sent)
