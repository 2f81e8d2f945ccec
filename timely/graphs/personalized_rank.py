"""PageRank for one or several reset distributions at once, with a choice of what becomes of rank at nodes without edges."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timely.dataflow import OperatorInfo, Stream
from timely.errors import ConfigurationError, SchemaError
from timely.graphs.arrays import Floats
from timely.graphs.bulk_synchronous import Steps, bulk_synchronous
from timely.graphs.graph_partition import GraphPartition, partitioned, result_batch
from timely.order import PartialOrder

T = TypeVar("T", bound=PartialOrder)

Dangling: TypeAlias = Literal["spread", "scale"]
"""What becomes of rank at nodes without edges: it is spread as the rest is, or lost, and all ranks are scaled up at the end."""

Matrix: TypeAlias = npt.NDArray[np.float64]


def personalized_pagerank(
    edges: Stream[T, Any],
    vertices: Stream[T, Any],
    *,
    sources: int = 0,
    damping: float = 0.85,
    tolerance: float | None = None,
    rounds: int | None = None,
    dangling: Dangling = "spread",
) -> Stream[T, Any]:
    """Return Arrow batches ``(node, ranks)``: for each node a list of float64, its rank for each of the ``sources``.

    ``edges`` are batches ``(src, dst)``, ``vertices`` are batches ``(node, source)``, where ``source`` is null, or the number of
    the source that the node is, from 0. The ranks of a source add up to 1. Without ``sources`` there is one rank for each node,
    of which all nodes are a source, and the ranks add up to the number of nodes. In a round a node gives ``damping`` of its rank
    to its targets in equal parts; the rest goes to the source. Exactly one of ``rounds``, and ``tolerance`` for the greatest
    change of a rank in the last round. Each time is a graph of its own.

    ``ConfigurationError`` for such parameters that cannot be; ``SchemaError``, as the cause of an ``OperatorError``, for a source
    that no vertex is, two vertices with one node, and edges whose ends are no vertices. Source: Haveliwala, "Topic-sensitive
    PageRank" (2002).

    >>> import pyarrow as pa
    >>> import timely
    >>> def build(scope):
    ...     start = scope.to_stream([0])
    ...     edges = start.map_batch(lambda _: pa.record_batch({"src": ["a", "b"], "dst": ["b", "a"]}))
    ...     vertices = start.map_batch(lambda _: pa.record_batch({"node": ["a", "b"], "source": [0, None]}))
    ...     return personalized_pagerank(edges, vertices, sources=1, damping=0.5, tolerance=1e-9)
    >>> [(time, rows)] = timely.example(build)
    >>> [(node, round(ranks[0], 4)) for node, ranks in rows]
    [('a', 0.6667), ('b', 0.3333)]
    """
    check_rank_parameters(damping, tolerance, rounds, dangling)
    program = partial(_program, sources=sources, damping=damping, tolerance=tolerance, rounds=rounds, lost=dangling == "scale")
    return bulk_synchronous("personalized pagerank", [vertices, edges], program)


def check_rank_parameters(damping: float, tolerance: float | None, rounds: int | None, dangling: object) -> None:
    """Raise ``ConfigurationError`` for invalid parameters."""
    if not 0 <= damping < 1:
        raise ConfigurationError(f"personalized pagerank: damping must be at least 0 and below 1, not {damping!r}")
    if (tolerance is None) == (rounds is None):
        raise ConfigurationError("personalized pagerank: exactly one of rounds and a tolerance must be given")
    if tolerance is not None and not tolerance > 0:
        raise ConfigurationError(f"personalized pagerank: a tolerance must be above 0, not {tolerance!r}")
    if rounds is not None and not (isinstance(rounds, int) and rounds >= 0):
        raise ConfigurationError(f"personalized pagerank: rounds must be 0 or more, not {rounds!r}")
    if dangling not in ("spread", "scale"):
        raise ConfigurationError(f"personalized pagerank: dangling must be 'spread' or 'scale', not {dangling!r}")


def _program(
    info: OperatorInfo,
    collected: list[list[Any]],
    *,
    sources: int,
    damping: float,
    tolerance: float | None,
    rounds: int | None,
    lost: bool,
) -> Steps[Any]:
    vertices, edges = collected
    part = yield from partitioned(info, vertices, edges)
    reset = _reset(part, sources)
    totals: Floats = np.sum((yield [reset.sum(axis=0)] * info.peers), axis=0)
    if sources and not totals.all():
        raise SchemaError(f"{info.path}: a source of the ranks is no vertex: {int((totals == 0).sum())} of {sources} are none")
    ranks = reset.copy()
    degrees = part.degrees()
    loose = degrees == 0
    shares = 1 / np.maximum(degrees, 1)[:, np.newaxis]
    done, moved = 0, np.inf
    while done != rounds:
        away = ranks[loose].sum(axis=0)
        received = yield [(given, away, moved) for given in part.by_owner(_sums(part, ranks * shares))]
        if tolerance is not None and max(change for _, _, change in received) <= tolerance:
            break
        given = np.zeros_like(ranks)
        for places, (sums, _, _) in zip(part.mirrored, received, strict=True):
            given[places] += sums
        back = 1 - damping
        if not lost:
            back = back + damping * sum(away for _, away, _ in received) / totals
        before, ranks = ranks, damping * given + back * reset
        moved, done = float(np.abs(ranks - before).max(initial=0)), done + 1
    if lost:
        kept: Floats = np.sum((yield [ranks.sum(axis=0)] * info.peers), axis=0)
        ranks = ranks * (totals / np.where(kept > 0, kept, 1))
    return result_batch(part, ranks=pa.FixedSizeListArray.from_arrays(ranks.ravel(), ranks.shape[1]).cast(pa.list_(pa.float64())))


def _reset(part: GraphPartition, sources: int) -> Matrix:
    """Return the share that each vertex gets of what each source is given."""
    if not sources:
        return np.ones((len(part), 1))
    reset = np.zeros((len(part), sources))
    numbers = part.attributes["source"].combine_chunks()
    places = np.flatnonzero(numbers.is_valid())
    reset[places, numbers.drop_null().to_numpy()] = 1
    return reset


def _sums(part: GraphPartition, given: Matrix) -> Matrix:
    """Return, for each mirror, the sum of what each of its sources has ``given``."""
    columns = [np.bincount(part.targets, column[part.sources], part.mirrors) for column in given.T]
    return np.stack(columns, axis=1) if columns else np.empty((part.mirrors, 0))
