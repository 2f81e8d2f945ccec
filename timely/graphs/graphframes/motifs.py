"""Motifs: patterns of named vertices and edges, found by joins.

A pattern is a list of terms, separated by semicolons::

    (a)-[e]->(b)      an edge e from a to b; names may be left out       (a)-[e*2]->(b)     a path of two edges
    (a)<-[e]-(b)      the same from b to a                               (a)-[e*1..3]->(b)  of one to three, alone in its pattern
    (a)<-[e]->(b)     two edges, e1 and e2, either way                   (a)-[e*2]-(b)      in either direction, alone
    (a)-[e]-(b)       an edge in either direction                        !(a)-[]->(b)       no edge from a to b
    (a)               a vertex

The invariant: a row of the result is one choice of vertices and edges for all terms, and each choice has one row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Final

import attrs
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from timely.errors import ConfigurationError
from timely.graphs.graphframes.graph_tables import field, nested
from timely.graphs.spark.graph_columns import quoted

_TERM: Final = re.compile(
    r"(?P<negated>!?) \( (?P<left>\w*) \)"
    r"(?: (?P<back><?) -\[ (?P<edge>\w*) (?: (?P<star>\*) (?P<least>\d*) (?P<range>\.\.)? (?P<most>\d*) )? \]- (?P<forth>>?)"
    r" \( (?P<right>\w*) \) )?".replace(" ", r"\s*"),
    re.ASCII,
)

_HIDDEN: Final = "__motif_"
"""Begins the names of elements that are in no result."""


@attrs.frozen
class _Vertex:
    name: str


@attrs.frozen
class _Edge:
    """An edge between named vertices, where an empty name is any vertex."""

    name: str
    src: str
    dst: str
    negated: bool = False
    undirected: bool = False

    def named(self) -> list[str]:
        """Return the names of its vertices, each once."""
        return [name for name in dict.fromkeys((self.src, self.dst)) if name]


_Term = _Vertex | _Edge


def find_motif(vertices: DataFrame, edges: DataFrame, pattern: str) -> DataFrame:
    """Return a row for each instance of a pattern, with a struct for each of its names in the order in which they first occur.

    Terms in either direction add columns ``_pattern`` and ``_direction`` (``"in"`` or ``"out"``), those of several lengths
    ``_hop`` too. ``ConfigurationError`` for a pattern that cannot be read.
    """
    if not isinstance(pattern, str):
        raise ConfigurationError(f"find: a pattern is a string, such as '(a)-[e]->(b)', not {pattern!r}")
    several = list(_lengths(pattern))
    if several:
        parts = [
            _find(vertices, edges, one).withColumns({"_hop": F.lit(hops), "_pattern": F.lit(one), "_direction": F.lit(direction)})
            for hops, one, direction in several
        ]
        united = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)
        return united.orderBy("_hop", "_direction")
    return _find(vertices, edges, pattern)


def _lengths(pattern: str) -> Iterator[tuple[int, str, str]]:
    """Yield the patterns of fixed length in one direction that a pattern of several stands for, the longest first."""
    match = _TERM.fullmatch(pattern.strip())
    if match is None or not match["star"] or not (match["range"] or _directions(match) == 0):
        return
    least, most = match["least"], match["most"] if match["range"] else match["least"]
    if not least or not most or not 0 < int(least) <= int(most):
        raise ConfigurationError(
            f"find: {pattern!r} must say from how many edges, at least 1, to how many: as (a)-[e*1..3]->(b), or (a)-[e*2]-(b)"
        )
    if match["negated"] or match["back"]:
        raise ConfigurationError(
            f"find: {pattern!r} has several lengths, and can neither be negated nor lead back: (b)-[*1..3]->(a)"
        )
    left, edge, right = match["left"], match["edge"], match["right"]
    for hops in reversed(range(int(least), int(most) + 1)):
        yield hops, f"({left})-[{edge}*{hops}]->({right})", "out"
    if not match["forth"]:
        for hops in reversed(range(int(least), int(most) + 1)):
            yield hops, f"({left})<-[{edge}*{hops}]-({right})", "in"


def _directions(match: re.Match[str]) -> int:
    return bool(match["back"]) + bool(match["forth"])


def _find(vertices: DataFrame, edges: DataFrame, pattern: str) -> DataFrame:
    terms = list(_parsed(pattern)) if pattern.strip() else []
    _check_names(pattern, terms)
    bound = {name for term in terms if not _negated(term) for name in _vertices(term)}
    free = sorted({name for term in terms if _negated(term) for name in _vertices(term)} - bound)
    instances: DataFrame | None = None
    for term in [*map(_Vertex, free), *terms]:
        instances = _added(vertices, edges, instances, term)
    if instances is None:
        return vertices.sparkSession.createDataFrame([], StructType())
    return instances.select(*map(quoted, _columns(terms)))


def _parsed(pattern: str) -> Iterator[_Term]:
    for number, text in enumerate(pattern.split(";")):
        match = _TERM.fullmatch(text.strip())
        if match is None:
            raise ConfigurationError(
                f"find: {text.strip()!r} is no term of a pattern, such as (a)-[e]->(b), (a)<-[]-(), (a)-[e]-(b), (a)-[e*2]->(b),"
                " (a), or !(a)-[]->(b); terms are separated by semicolons"
            )
        yield from _terms(match, text.strip(), number)


def _terms(match: re.Match[str], text: str, number: int) -> Iterator[_Term]:
    """Yield the edges that a term stands for."""
    left, edge, right, negated = match["left"], match["edge"], match["right"], bool(match["negated"])
    if edge is None:
        if negated or not left:
            raise ConfigurationError(f"find: {text!r} must be a vertex with a name: count the rows of vertices instead")
        yield _Vertex(left)
        return
    if negated and edge:
        raise ConfigurationError(f"find: {text!r} says that there is no edge, so it cannot have a name: !({left})-[]->({right})")
    if negated and match["star"]:
        raise ConfigurationError(f"find: {text!r} negates a path, which is not supported: find the path, and join by 'left_anti'")
    if not (left or right or edge):
        raise ConfigurationError(f"find: {text!r} has no name at all: use the edges themselves")
    if match["back"] and not match["forth"]:
        left, right = right, left
    hops = 1
    if match["star"]:
        if match["range"] or not match["least"] or not int(match["least"]) or not _directions(match):
            raise ConfigurationError(
                f"find: {text!r} must say how many edges it has, at least 1, in one direction: (a)-[e*2]->(b); others only alone"
            )
        hops = int(match["least"])
    if _directions(match) == 2:
        if negated:
            raise ConfigurationError(f"find: {text!r} negates both directions at once: write two negated terms")
        names = (f"{edge}1", f"{edge}2") if edge and hops == 1 else (edge, edge)
        yield from _path(names[0], left, right, hops, bool(match["star"]), f"{number}a")
        yield from _path(names[1], right, left, hops, bool(match["star"]), f"{number}b")
    elif _directions(match) == 0:
        yield _Edge(edge or f"{_HIDDEN}{number}", left, right, negated, undirected=True)
    elif match["star"]:
        yield from _path(edge, left, right, hops, True, str(number))
    else:
        yield _Edge(edge or f"{_HIDDEN}{number}", left, right, negated)


def _path(edge: str, left: str, right: str, hops: int, star: bool, number: str) -> Iterator[_Edge]:
    """Yield the edges of a path, whose inner vertices are named after its ends."""
    inner = [f"_{left}{right}{step}" if left or right else f"{_HIDDEN}v{number}_{step}" for step in range(1, hops)]
    for step, (src, dst) in enumerate(zip([left, *inner], [*inner, right]), 1):
        name = f"_{edge}{step}" if edge and star else edge
        yield _Edge(name or f"{_HIDDEN}{number}_{step}", src, dst)


def _check_names(pattern: str, terms: Sequence[_Term]) -> None:
    edges = [term.name for term in terms if isinstance(term, _Edge)]
    vertices = {name for term in terms for name in _vertices(term)}
    for name in edges:
        if edges.count(name) > 1:
            raise ConfigurationError(f"find: {pattern!r} has the name {name!r} for two edges: give each its own")
        if name in vertices:
            raise ConfigurationError(f"find: {pattern!r} has the name {name!r} for a vertex and an edge: give each its own")
    names = [*vertices, *edges]
    if len({name.lower() for name in names}) < len(names):
        raise ConfigurationError(f"find: {pattern!r} has names that differ in case alone, which Spark takes for one: rename one")


def _vertices(term: _Term) -> list[str]:
    return [term.name] if isinstance(term, _Vertex) else term.named()


def _negated(term: _Term) -> bool:
    return isinstance(term, _Edge) and term.negated


def _columns(terms: Sequence[_Term]) -> list[str]:
    """Return the names that a result has, in their order."""
    names: list[str] = []
    for term in terms:
        if isinstance(term, _Vertex):
            names.append(term.name)
            continue
        names += [term.src, *([] if term.negated else [term.name]), term.dst]
        if term.undirected and not term.negated:
            names += ["_pattern", "_direction"]
    return [name for name in dict.fromkeys(names) if name and not name.startswith(_HIDDEN)]


def _added(vertices: DataFrame, edges: DataFrame, instances: DataFrame | None, term: _Term) -> DataFrame:
    """Return what was found, with one term more."""
    if isinstance(term, _Vertex):
        if instances is not None and term.name in instances.columns:
            return instances
        alone = nested(vertices, term.name)
        return alone if instances is None else instances.crossJoin(alone)
    if term.negated:
        assert instances is not None  # the vertices of negated terms come first
        for one in [term, _swapped(term)] if term.undirected else [term]:
            instances = instances.join(nested(edges, one.name), _meets(one, one.named()), "left_anti")
        return instances
    if not term.undirected:
        return _joined(vertices, edges, instances, term)
    edge = "" if term.name.startswith(_HIDDEN) else term.name
    ways = [
        (_swapped(term), f"({term.src})<-[{edge}]-({term.dst})", "in"),
        (term, f"({term.src})-[{edge}]->({term.dst})", "out"),
    ]
    parts = [
        _joined(vertices, edges, instances, one).withColumns({"_pattern": F.lit(text), "_direction": F.lit(direction)})
        for one, text, direction in ways
    ]
    return parts[0].unionByName(parts[1])


def _swapped(edge: _Edge) -> _Edge:
    return attrs.evolve(edge, src=edge.dst, dst=edge.src)


def _joined(vertices: DataFrame, edges: DataFrame, instances: DataFrame | None, edge: _Edge) -> DataFrame:
    along = nested(edges, edge.name)
    known = [] if instances is None else [name for name in edge.named() if name in instances.columns]
    if instances is None:
        instances = along
    elif known:
        instances = instances.join(along, _meets(edge, known))
    else:
        instances = instances.crossJoin(along)
    for name in edge.named():
        if name not in known:
            instances = instances.join(nested(vertices, name), _meets(edge, [name]))
    return instances


def _meets(edge: _Edge, names: Sequence[str]) -> Column:
    """Return whether an edge has the vertices of these names as its ends."""
    ends = [(edge.src, "src"), (edge.dst, "dst")]
    return reduce(
        lambda one, other: one & other,
        [field(edge.name, end) == field(name, "id") for name, end in ends if name in names],
    )
