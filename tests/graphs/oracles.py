"""What the graph algorithms are compared with: NetworkX, or the definition, one node after another."""

from __future__ import annotations

from collections import Counter
from typing import Any

import networkx as nx

from tests.graphs.running import Edges

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
