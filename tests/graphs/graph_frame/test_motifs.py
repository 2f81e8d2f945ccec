"""Motifs: what patterns find, compared with a search over all choices, and what is refused."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.graphs.graph_frame.graphs import KNOWS, PEOPLE, people, rows
from timely import ConfigurationError

pytestmark = pytest.mark.spark

IDS = [one for one, _ in PEOPLE]
PAIRS = {(src, dst) for src, dst, _ in KNOWS}


def found(session: SparkSession, pattern: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """The columns, and the rows with vertices as their ids and edges as tuples."""
    frame = people(session).find(pattern)
    made = [
        tuple(
            None if one is None else one if isinstance(one, str | int) else one[0] if "name" in one else tuple(one) for one in row
        )
        for row in frame.collect()
    ]
    return frame.columns, sorted(made, key=repr)


@pytest.mark.parametrize(
    ("pattern", "columns", "expected"),
    [
        ("(a)", ["a"], [(one,) for one in IDS]),
        ("(a)-[e]->(b)", ["a", "e", "b"], [(edge[0], edge, edge[1]) for edge in KNOWS]),
        ("(b)<-[e]-(a)", ["a", "e", "b"], [(edge[0], edge, edge[1]) for edge in KNOWS]),
        ("()-[e]->()", ["e"], [(edge,) for edge in KNOWS]),
        ("(a)-[e]->()", ["a", "e"], [(edge[0], edge) for edge in KNOWS]),
        ("()-[]->(b)", ["b"], [(edge[1],) for edge in KNOWS]),
        ("(a)-[e]->(a)", ["a", "e"], [(4, (4, 4, "likes"))]),
        (
            "(a)-[]->(b); (b)-[]->(c)",
            ["a", "b", "c"],
            [(one[0], one[1], other[1]) for one in KNOWS for other in KNOWS if one[1] == other[0]],
        ),
        (
            "(a)-[e]->(b);\n (c)-[f]->(d)",
            ["a", "e", "b", "c", "f", "d"],
            [(one[0], one, one[1], other[0], other, other[1]) for one in KNOWS for other in KNOWS],
        ),
        ("(a)-[e]->(b); !(b)-[]->(a)", ["a", "e", "b"], [(e[0], e, e[1]) for e in KNOWS if (e[1], e[0]) not in PAIRS]),
        ("!(a)-[]->(b)", ["a", "b"], [pair for pair in itertools.product(IDS, IDS) if pair not in PAIRS]),
        ("(a); !(a)-[]->()", ["a"], [(5,), (6,)]),
        ("(a); !(a)-[]-()", ["a"], [(6,)]),
        (
            "(a)-[e]-(b)",
            ["a", "e", "b", "_pattern", "_direction"],
            [(edge[0], edge, edge[1], "(a)-[e]->(b)", "out") for edge in KNOWS]
            + [(edge[1], edge, edge[0], "(a)<-[e]-(b)", "in") for edge in KNOWS],
        ),
        (
            "(a)<-[e]->(b)",
            ["a", "e1", "b", "e2"],
            [(one[0], one, one[1], other) for one in KNOWS for other in KNOWS if one[:2] == (other[1], other[0])],
        ),
        (
            "(a)-[e*2]->(b)",
            ["a", "_e1", "_ab1", "_e2", "b"],
            [(one[0], one, one[1], other, other[1]) for one in KNOWS for other in KNOWS if one[1] == other[0]],
        ),
        ("()-[*2]->()", [], None),
        ("(a)-[*2]->()", ["a", "_a1"], [(one[0], one[1]) for one in KNOWS for other in KNOWS if one[1] == other[0]]),
        (
            "(a)-[e*1..2]->(b)",
            ["a", "_e1", "_ab1", "_e2", "b", "_hop", "_pattern", "_direction"],
            [(edge[0], edge, None, None, edge[1], 1, "(a)-[e*1]->(b)", "out") for edge in KNOWS]
            + [
                (one[0], one, one[1], other, other[1], 2, "(a)-[e*2]->(b)", "out")
                for one in KNOWS
                for other in KNOWS
                if one[1] == other[0]
            ],
        ),
        (
            "(a)-[e*1]-(b)",
            ["a", "_e1", "b", "_hop", "_pattern", "_direction"],
            [(edge[0], edge, edge[1], 1, "(a)-[e*1]->(b)", "out") for edge in KNOWS]
            + [(edge[1], edge, edge[0], 1, "(a)<-[e*1]-(b)", "in") for edge in KNOWS],
        ),
        ("", [], []),
    ],
)
@pytest.mark.soak
def test_patterns(session: SparkSession, pattern: str, columns: list[str], expected: list[tuple[Any, ...]] | None) -> None:
    if expected is None:
        with pytest.raises(ConfigurationError, match="has no name at all"):
            people(session).find(pattern)
        return
    assert found(session, pattern) == (columns, sorted(expected, key=repr))


def test_a_motif_of_friends_of_friends_goes_on_as_a_table(session: SparkSession) -> None:
    chains = people(session).find("(a)-[e1]->(b); (b)-[e2]->(c); !(a)-[]->(c)").filter("a.id <> c.id AND e1.how = 'likes'")
    assert rows(chains.select("a.name", "b.name", "c.name")) == [("Ada", "Bob", "Cy")]


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("(a)-[e]->(b", "is no term of a pattern"),
        ("(a)-(b)", "is no term of a pattern"),
        ("(a b)", "is no term of a pattern"),
        ("()", "must be a vertex with a name"),
        ("!(a)", "must be a vertex with a name"),
        ("()-[]->()", "has no name at all"),
        ("!()-[]->()", "has no name at all"),
        ("()-[]-()", "has no name at all"),
        ("!(a)-[e]->(b)", "there is no edge, so it cannot have a name"),
        ("!(a)<-[]->(b)", "negates both directions at once"),
        ("!(a)-[*2]->(b)", "negates a path"),
        ("(a)-[e]->(b); (b)-[e]->(c)", "has the name 'e' for two edges"),
        ("(a)-[e]->(b); (e)-[]->(c)", "has the name 'e' for a vertex and an edge"),
        ("(a)-[]->(A)", "differ in case alone"),
        ("(a)-[e*0]->(b)", "must say how many edges it has"),
        ("(a)-[e*]->(b)", "must say how many edges it has"),
        ("(a)-[e*]-(b)", "must say from how many edges"),
        ("(a)-[e*1..]->(b)", "must say from how many edges"),
        ("(a)-[e*..3]->(b)", "must say from how many edges"),
        ("(a)-[e*3..2]->(b)", "must say from how many edges"),
        ("!(a)-[*1..2]->(b)", "can neither be negated"),
        ("(a)-[e*1..2]->(b); (b)-[]->(c)", "others only alone"),
        (3, "a pattern is a string"),
    ],
)
def test_patterns_that_are_refused(session: SparkSession, pattern: Any, told: str) -> None:
    with pytest.raises(ConfigurationError, match=f"find: .*{told}"):
        people(session).find(pattern)
