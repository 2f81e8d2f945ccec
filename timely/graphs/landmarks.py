"""``landmark_distances``: how many edges each node is from each of some landmarks, for all landmarks in one search."""

from __future__ import annotations

from functools import partial
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timely.dataflow import OperatorInfo, Stream
from timely.errors import ConfigurationError
from timely.graphs.arrays import MISSING, ranges, sorted_distinct
from timely.graphs.bulk_synchronous import Steps, bulk_synchronous
from timely.graphs.graph_partition import partitioned, result_batch
from timely.order import PartialOrder

T = TypeVar("T", bound=PartialOrder)

_PAIR: Final = pa.struct([pa.field("landmark", pa.int32()), pa.field("distance", pa.int32())])


def landmark_distances(
    edges: Stream[T, Any], vertices: Stream[T, Any], landmarks: int, *, both_ways: bool = False, limit: int | None = None
) -> Stream[T, Any]:
    """Return Arrow batches ``(node, distances)``: for each node a list of structs ``(landmark, distance)``, sorted by landmark.

    ``edges`` are batches ``(src, dst)``, ``vertices`` are batches ``(node, landmark)``, where ``landmark`` is null, or the number
    of the landmark that the node belongs to, from 0 up to ``landmarks - 1``. The distance is the least number of edges of a path
    that begins at a node of the landmark, in either direction with ``both_ways``. Landmarks without a path, or with none of up to
    ``limit`` edges, are not in the list. Each time is a graph of its own. ``SchemaError``, as the cause of an ``OperatorError``,
    for two vertices with one node, and edges whose ends are no vertices; ``ConfigurationError`` for less than 1 landmark.

    >>> import pyarrow as pa
    >>> import timely
    >>> def build(scope):
    ...     start = scope.to_stream([0])
    ...     edges = start.map_batch(lambda _: pa.record_batch({"src": ["a", "b"], "dst": ["b", "c"]}))
    ...     vertices = start.map_batch(lambda _: pa.record_batch({"node": ["a", "b", "c"], "landmark": [0, None, 1]}))
    ...     return landmark_distances(edges, vertices, 2)
    >>> [(time, rows)] = timely.example(build)
    >>> [(node, [tuple(pair.values()) for pair in pairs]) for node, pairs in rows]
    [('a', [(0, 0)]), ('b', [(0, 1)]), ('c', [(0, 2), (1, 0)])]
    """
    if landmarks < 1:
        raise ConfigurationError(f"landmark distances: there must be 1 landmark or more, not {landmarks!r}")
    program = partial(_program, landmarks=landmarks, both_ways=both_ways, limit=limit)
    return bulk_synchronous("landmark distances", [vertices, edges], program)


def _program(info: OperatorInfo, collected: list[list[Any]], *, landmarks: int, both_ways: bool, limit: int | None) -> Steps[Any]:
    vertices, edges = collected
    part = yield from partitioned(info, vertices, edges, both_ways=both_ways)
    targets, starts = part.by_source()
    given = part.attributes["landmark"].combine_chunks() if len(part) else pa.array([], pa.int32())
    near = np.flatnonzero(given.is_valid()) * landmarks + given.drop_null().to_numpy()  # pairs of node and landmark
    distances = np.full(len(part) * landmarks, MISSING, np.int32)
    distances[near] = 0
    step = 0
    while step != limit:
        places, marks = np.divmod(near, landmarks)
        counts = starts[places + 1] - starts[places]
        pairs = sorted_distinct(targets[ranges(starts[places], counts)] * landmarks + np.repeat(marks, counts))
        mirrors, marks = np.divmod(pairs, landmarks)
        received = yield [(len(near), sent) for sent in part.to_owners(mirrors, marks)]
        if not any(count for count, _ in received):
            break
        step += 1
        places, marks = part.from_mirrors([sent for _, sent in received])
        near = sorted_distinct(places * landmarks + marks)
        near = near[distances[near] == MISSING]
        distances[near] = step
    return result_batch(part, distances=_lists(distances, landmarks))


def _lists(distances: npt.NDArray[np.int32], landmarks: int) -> pa.Array:
    """Return the list of each node."""
    found = np.flatnonzero(distances != MISSING)
    counts = np.bincount(found // landmarks, minlength=len(distances) // landmarks)
    pairs = pa.StructArray.from_arrays(
        [pa.array((found % landmarks).astype(np.int32)), pa.array(distances[found], pa.int32())], fields=list(_PAIR)
    )
    return pa.ListArray.from_arrays(np.concatenate(([0], np.cumsum(counts))).astype(np.int32), pairs)
