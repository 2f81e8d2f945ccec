"""How the tests of the graph algorithms run them, and what they compare with: NetworkX, or the definition, node by node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pytest
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

import timely
from timely.cli.debian import requirements
from timely.graphs import strongly_connected_components
from timely.testing import simulate

Edges = Sequence[tuple[Any, Any]]


def debian(kind: str | None = None) -> pa.Table:
    """Who requires whom in Debian, as ``(src, dst)``: of one kind, or of all."""
    table = requirements() if kind is None else requirements(kind)
    return table.select(["package", "requires"]).rename_columns(["src", "dst"])


def vertices_of(nodes: Sequence[Any], node: pa.DataType | None = None) -> pa.Table:
    """Nodes as a table."""
    return pa.table({"node": pa.array(nodes, node or pa.int64())})


def table_of(edges: Edges, node: pa.DataType | None = None) -> pa.Table:
    """Edges as a table of whole numbers, or of another type."""
    kind = node or pa.int64()
    return pa.table({"src": pa.array([a for a, _ in edges], kind), "dst": pa.array([b for _, b in edges], kind)})


def run(
    epochs: Sequence[pa.Table],
    *others: Sequence[pa.Table],
    build: Callable[..., timely.Stream[int, Any]] = strongly_connected_components,
    workers: int = 1,
    processes: int = 1,
    rows: int = 20_000,
    seed: int | None = None,
) -> list[pa.Table]:
    """Run ``build`` on a table of edges for each epoch, partitioned to the workers in batches; return the rows of each epoch.

    ``others`` are further streams that ``build`` gets, in the same way. With ``seed`` workers are simulated.
    """

    def program(worker: timely.Worker) -> list[tuple[int, Any]]:
        with worker.dataflow(int) as scope:
            handles, streams = zip(*(scope.new_input() for _ in (epochs, *others)))
            captured = build(*streams).capture()
        for epoch, tables in enumerate(zip(epochs, *others, strict=True)):
            for handle, table in zip(handles, tables):
                for batch in table.combine_chunks().to_batches(max_chunksize=rows)[worker.index :: worker.peers]:
                    handle.send_batch(batch)
                handle.advance_to(epoch + 1)
        for handle in handles:
            handle.close()
        worker.run()
        return captured.messages

    if seed is None:
        results = timely.execute(program, workers=workers, processes=processes)
    else:
        results = simulate(program, workers, seed).results
    messages = [message for result in results for message in result]
    schema = messages[0][1].schema if messages else pa.schema([("node", pa.int64()), ("component", pa.int64())])
    return [pa.Table.from_batches([batch for time, batch in messages if time == epoch], schema) for epoch in range(len(epochs))]


def refused(*epochs: pa.Table, build: Callable[..., timely.Stream[int, Any]], workers: int = 1) -> str:
    """What the ``SchemaError`` says that refuses what comes."""
    with pytest.raises(timely.OperatorError) as caught:
        run(epochs, build=build, workers=workers)
    assert isinstance(caught.value.__cause__, timely.SchemaError)
    return str(caught.value.__cause__)


def answers(tables: Sequence[pa.Table]) -> list[dict[Any, Any]]:
    """The value of each node after each epoch, where an epoch has rows for what has changed; a row that says nothing new
    fails, and so does a second one for a node.
    """
    states: list[dict[Any, Any]] = []
    state: dict[Any, Any] = {}
    for table in tables:
        node, value = (table.column(place).to_pylist() for place in (0, 1))
        assert len(set(node)) == len(node)
        assert all(key not in state or state[key] != changed for key, changed in zip(node, value))
        state = {**state, **dict(zip(node, value))}
        states.append(state)
    return states


def so_far(epochs: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Everything up to each epoch."""
    return [[row for rows in epochs[: end + 1] for row in rows] for end in range(len(epochs))]


def components(table: pa.Table) -> dict[Any, Any]:
    """The component of each node; a node that has two rows fails."""
    result = dict(zip(table["node"].to_pylist(), table["component"].to_pylist()))
    assert len(result) == table.num_rows
    return result


def expected(edges: pa.Table) -> dict[Any, Any]:
    """What SciPy finds: the component of each node, named by its smallest node."""
    if not edges.num_rows:
        return {}
    nodes = pc.unique(pa.chunked_array(edges["src"].chunks + edges["dst"].chunks))
    source, target = (pc.index_in(edges[name], nodes).to_numpy() for name in ("src", "dst"))
    matrix = coo_matrix((np.ones(len(source)), (source, target)), (len(nodes), len(nodes)))
    _, labels = connected_components(matrix, connection="strong")
    smallest: dict[int, Any] = {}
    for node, label in zip(nodes.to_pylist(), labels.tolist()):
        smallest[label] = min(node, smallest.get(label, node))
    return {node: smallest[label] for node, label in zip(nodes.to_pylist(), labels.tolist())}


Weighted = list[tuple[Any, Any, float]]


def joined(edges: Edges, nodes: Any = ()) -> dict[Any, Any]:
    """What NetworkX finds: the component of each node, named by its smallest node."""
    graph: Any = nx.Graph(edges)
    graph.add_nodes_from(nodes)
    return {node: least for members in nx.connected_components(graph) for least in [min(members)] for node in members}


def strong(edges: Edges, nodes: Any = ()) -> dict[Any, Any]:
    """What NetworkX finds: the strong component of each node, named by its smallest node."""
    graph: Any = nx.DiGraph(edges)
    graph.add_nodes_from(nodes)
    groups = nx.strongly_connected_components(graph)
    return {node: least for members in groups for least in [min(members)] for node in members}


def nearest(edges: Weighted, source: Any) -> dict[Any, float]:
    """What NetworkX finds."""
    graph: Any = nx.MultiDiGraph()
    graph.add_weighted_edges_from(edges)
    return dict(nx.single_source_dijkstra_path_length(graph, source)) if source in graph else {}


def ranked(edges: Edges, alone: Any = (), *, rounds: int = 0, damping: float = 0.85) -> dict[Any, float]:
    """So many rounds as they are defined, one node after another; without, so many that nothing moves."""
    nodes = {node for edge in edges for node in edge} | set(alone)
    degree = Counter(source for source, _ in edges)
    ranks = dict.fromkeys(nodes, 1 / len(nodes)) if nodes else {}
    for _ in range(rounds or 300):
        loose = sum(rank for node, rank in ranks.items() if not degree[node])
        sums: dict[Any, float] = dict.fromkeys(nodes, (1 - damping + damping * loose) / len(nodes)) if nodes else {}
        for source, target in edges:
            sums[target] += damping * ranks[source] / degree[source]
        ranks = sums
    return ranks


def voted(edges: Edges, alone: Any = (), rounds: int = 10) -> dict[Any, Any]:
    """As it is defined, one node after another."""
    neighbours: dict[Any, list[Any]] = {node: [] for edge in [*edges, *zip(alone, alone)] for node in edge}
    for a, b in edges:
        if a != b:
            neighbours[a].append(b)
            neighbours[b].append(a)
    labels = {node: node for node in neighbours}
    for _ in range(rounds):
        before = labels
        labels = dict(before)
        for node, others in neighbours.items():
            votes = Counter(before[other] for other in others)
            if votes:
                labels[node] = min(label for label in votes if votes[label] == max(votes.values()))
    return labels


def corners(edges: Edges, alone: Any = ()) -> dict[Any, int]:
    """What NetworkX finds."""
    graph: Any = nx.Graph(edges)
    graph.add_nodes_from(alone)
    graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    return dict(nx.triangles(graph))
