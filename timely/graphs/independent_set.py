"""``maximal_independent_set``: nodes of which no two are neighbours, and to which no other can be added."""

from __future__ import annotations

from functools import partial
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timely.dataflow import OperatorInfo, Stream, route_column
from timely.errors import RoutingError
from timely.graphs.bulk_synchronous import Steps, bulk_synchronous
from timely.graphs.graph_partition import partitioned
from timely.order import PartialOrder

T = TypeVar("T", bound=PartialOrder)

Priorities = npt.NDArray[np.uint64]

_LAST: Final = np.uint64(2**64 - 1)
_STEP: Final = 0x9E3779B97F4A7C15
_MASK: Final = 2**64 - 1


def maximal_independent_set(edges: Stream[T, Any], vertices: Stream[T, Any], *, seed: int = 42) -> Stream[T, Any]:
    """Return Arrow batches ``(node)``: nodes of which no two are ends of an edge, and so many that no node can be added.

    ``edges`` are batches ``(src, dst)`` without a direction, of which loops are left out; ``vertices`` are batches with a column
    ``node``. ``seed`` chooses one of the many sets; it is the same set for any number of workers. Each time is a graph of its
    own. ``SchemaError``, as the cause of an ``OperatorError``, for two vertices with one node, and edges whose ends are no
    vertices. Source: Luby, "A simple parallel algorithm for the maximal independent set problem" (1986).

    >>> import pyarrow as pa
    >>> import timely
    >>> def build(scope):
    ...     start = scope.to_stream([0])
    ...     edges = start.map_batch(lambda _: pa.record_batch({"src": ["a", "a"], "dst": ["b", "c"]}))
    ...     return maximal_independent_set(edges, start.map_batch(lambda _: pa.record_batch({"node": ["a", "b", "c"]})))
    >>> [(time, rows)] = timely.example(build)
    >>> sorted(node for node, in rows) in (["a"], ["b", "c"])
    True
    """
    return bulk_synchronous("maximal independent set", [vertices, edges], partial(_program, seed=seed))


def _program(info: OperatorInfo, collected: list[list[Any]], *, seed: int) -> Steps[Any]:
    vertices, edges = collected
    part = yield from partitioned(info, vertices, edges, both_ways=True)
    names = _hashes(part.nodes)
    sources, targets = part.sources, part.targets
    received = yield part.to_mirrors(np.arange(len(part)) * info.peers + info.worker)
    apart = np.concatenate(received)[targets] != sources * info.peers + info.worker
    sources, targets = sources[apart], targets[apart]
    chosen = np.zeros(len(part), np.bool_)
    left = np.ones(len(part), np.bool_)
    step = seed
    while any((yield [bool(left.any())] * info.peers)):
        step += 1
        own = np.where(left, _mixed(names, step), _LAST)
        best = np.full(part.mirrors, _LAST)
        np.minimum.at(best, targets, own[sources])
        lowest = np.full(len(part), _LAST)
        for places, priorities in zip(part.mirrored, (yield part.by_owner(best)), strict=True):
            np.minimum.at(lowest, places, priorities)
        new = left & (own < lowest)  # nobody of two neighbours that have the same priority: they get others in the next step
        chosen |= new
        covered = np.zeros(part.mirrors, np.bool_)
        covered[targets[new[sources]]] = True
        left &= ~new
        for places, near in zip(part.mirrored, (yield part.by_owner(covered)), strict=True):
            left[places[near]] = False
    return pa.record_batch({"node": part.nodes.filter(pa.array(chosen))})


def _hashes(nodes: pa.Array) -> Priorities:
    try:
        return route_column(nodes).astype(np.uint64)
    except RoutingError:
        return route_column(nodes.cast(pa.string())).astype(np.uint64)


def _mixed(names: Priorities, step: int) -> Priorities:
    """Return pseudo-random numbers, below the last one, for names in a step: the output function of SplitMix64."""
    mixed = names + np.uint64(step * _STEP & _MASK)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.minimum(mixed ^ (mixed >> np.uint64(31)), _LAST - np.uint64(1))
