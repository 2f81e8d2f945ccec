"""The workloads in pathway: static tables that it reads by itself, and its own expressions instead of Python's functions.

Numbers come from a file, which is the quickest way that it has for them. Several workers are its threads, in one process.
Graphs are searched by ``pathway.iterate``, to the fixpoint.
"""

from __future__ import annotations

from typing import Any

import pathway as pw

from benchmarks.contestants.told import ROUNDS, Answer, Task, main


class Numbers(pw.Schema):  # type: ignore[misc]
    """One column of whole numbers."""

    x: int


class Edges(pw.Schema):  # type: ignore[misc]
    """The edges of a graph."""

    src: int
    dst: int


def answer(table: Any) -> Answer:
    """Run everything that leads to a table of two columns, and return its rows."""
    rows: dict[Any, tuple[Any, Any]] = {}

    def change(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        if is_addition:
            rows[key] = tuple(row.values())
        else:
            rows.pop(key, None)

    pw.io.subscribe(table, change)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    return rows.values()


def word_count(task: Task) -> Answer:
    """Lines are split by Python, which pathway has no expression for."""
    lines = pw.io.plaintext.read(task.input, mode="static")
    words = lines.select(word=pw.apply_with_type(str.split, list[str], pw.this.data)).flatten(pw.this.word)
    return answer(words.groupby(pw.this.word).reduce(pw.this.word, number=pw.reducers.count()))


def map_filter_map(task: Task) -> Answer:
    """With expressions on columns, and one reduction for the count and the sum."""
    numbers = pw.io.csv.read(task.input, schema=Numbers, mode="static")
    halved = numbers.select(x=3 * pw.this.x + 1).filter(pw.this.x % 2 == 0).select(x=pw.this.x // 2)
    both = halved.reduce(count=pw.reducers.count(), sum=pw.reducers.sum(pw.this.x))
    return [*zip(("count", "sum"), next(iter(answer(both))), strict=True)]


def sum_by_key(task: Task) -> Answer:
    """Added up for each of a thousand keys, which are strings."""
    numbers = pw.io.csv.read(task.input, schema=Numbers, mode="static")
    pairs = numbers.select(key=(pw.this.x % 1000).to_string(), x=pw.this.x)
    return answer(pairs.groupby(pw.this.key).reduce(pw.this.key, sum=pw.reducers.sum(pw.this.x)))


def _graph(task: Task) -> tuple[Any, Any]:
    """Return the nodes and the edges, whose ends are keys of nodes."""
    edges = pw.io.csv.read(task.input, schema=Edges, mode="static")
    ends = edges.select(node=pw.this.src).concat_reindex(edges.select(node=pw.this.dst))
    nodes = ends.groupby(pw.this.node).reduce(pw.this.node).with_id_from(pw.this.node)
    return nodes, edges.select(src=nodes.pointer_from(edges.src), dst=nodes.pointer_from(edges.dst))


def breadth_first_search(task: Task) -> Answer:
    """Hops from node 0."""
    nodes, edges = _graph(task)
    far = 1 << 40

    def step(found: Any, edges: Any) -> Any:
        offers = edges.select(node=edges.dst, hops=found.ix(edges.src).hops + 1).filter(pw.this.hops <= far)
        same = found.select(node=found.id, hops=found.hops)
        best = same.concat_reindex(offers).groupby(id=pw.this.node).reduce(hops=pw.reducers.min(pw.this.hops))
        return {"found": best.with_universe_of(found), "edges": edges}

    start = nodes.select(hops=pw.if_else(nodes.node == 0, 0, far))
    found = pw.iterate(step, found=start, edges=edges).found
    return answer(nodes.select(nodes.node, hops=found.with_universe_of(nodes).hops).filter(pw.this.hops < far))


def components(task: Task) -> Answer:
    """Every node takes the smallest label around it until none changes."""
    nodes, one_way = _graph(task)
    edges = one_way.concat_reindex(one_way.select(src=pw.this.dst, dst=pw.this.src))

    def step(found: Any, edges: Any) -> Any:
        offers = edges.select(node=edges.dst, label=found.ix(edges.src).label)
        same = found.select(node=found.id, label=found.label)
        best = same.concat_reindex(offers).groupby(id=pw.this.node).reduce(label=pw.reducers.min(pw.this.label))
        return {"found": best.with_universe_of(found), "edges": edges}

    found = pw.iterate(step, found=nodes.select(label=nodes.node), edges=edges).found
    return answer(nodes.select(nodes.node, label=found.with_universe_of(nodes).label))


def ranks(task: Task) -> Answer:
    """So many rounds of PageRank, written out as in pathway's own; nodes without an edge out give to all."""
    nodes, edges = _graph(task)
    degrees = edges.groupby(id=edges.src).reduce(degree=pw.reducers.count())
    nodes = nodes.with_columns(degree=0).update_cells(degrees.promise_universe_is_subset_of(nodes))
    none = nodes.select(node=nodes.id, rank=0.0)
    n = nodes.reduce(n=pw.reducers.count()).ix_ref().n
    found = nodes.select(rank=1.0 / n)
    for _ in range(ROUNDS):
        given = found.select(rank=found.rank / pw.if_else(nodes.degree == 0, 1, nodes.degree))
        sums = none.concat_reindex(edges.select(node=edges.dst, rank=given.ix(edges.src).rank))
        come = sums.groupby(id=pw.this.node).reduce(rank=pw.reducers.sum(pw.this.rank)).with_universe_of(nodes)
        kept = found.select(rank=pw.if_else(nodes.degree == 0, found.rank, 0.0)).reduce(rank=pw.reducers.sum(pw.this.rank))
        found = nodes.select(rank=0.15 / n + 0.85 * (come.rank + kept.ix_ref().rank / n))
    return answer(nodes.select(nodes.node, rank=found.rank))


if __name__ == "__main__":
    main((word_count, map_filter_map, sum_by_key, breadth_first_search, components, ranks))
