"""Label propagation in which an edge's vote counts more, the more neighbours its ends have in common."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from timely.dataflow import OperatorInfo, Stream
from timely.errors import SchemaError
from timely.graphs.graphframes.pregel.bulk_synchronous import StepProgram, Steps, bulk_synchronous
from timely.graphs.graphframes.pregel.graph_partition import GraphPartition, partitioned, result_batch
from timely.graphs.structures.arrays import BLOCK, Column, Lists, distinct_pairs, join_columns, run_starts
from timely.operators.type_variables import T


def neighborhood_labels(
    edges: Stream[T, Any],
    vertices: Stream[T, Any],
    *,
    rounds: int,
    similarity: float = 0.5,
    direct: float = 1.0,
    both_ways: bool = False,
) -> Stream[T, Any]:
    """Return Arrow batches ``(node, label)``.

    ``edges`` are batches ``(src, dst)``, ``vertices`` are batches ``(node, label)`` with the first label of each node, of a type
    that Arrow can sort. In a round the label of each ``src`` votes at ``dst``: ``direct``, and ``similarity`` for each neighbour
    that both have in common. All nodes at once take the label with the most votes, of several the greatest; those without a
    vote stay as they are. That ends when no label changes, or after so many ``rounds``. Neighbours are in either direction.
    With ``both_ways`` votes are too, and repeated edges are one. ``SchemaError`` for labels that are null. Source: Xie and
    Szymanski, "Community detection using a neighborhood strength driven label propagation algorithm" (2011).
    """
    program = _Voting(rounds, similarity, direct, both_ways)
    return bulk_synchronous("neighborhood labels", [vertices, edges], program)


@attrs.define(eq=False)
class _Labels:
    """One worker's nodes. A label is its place among all ``names``, in their order, which worker 0 has.

    ``common`` has, for each edge, how many neighbours its ends have in common.
    """

    part: GraphPartition
    sources: Column
    targets: Column
    common: Column
    labels: Column
    names: pa.Array
    done: int = 0


@attrs.frozen
class _Voting(StepProgram[_Labels]):
    _rounds: int
    _similarity: float
    _direct: float
    _both_ways: bool

    def begin(self, info: OperatorInfo, collected: list[list[Any]]) -> Steps[_Labels]:
        part = yield from partitioned(info, *collected, both_ways=self._both_ways)
        sources, targets = part.sources, part.targets
        if self._both_ways:
            sources, targets = distinct_pairs(sources, targets)
        common = yield from _common_neighbours(info, part, sources, targets)
        labels, names = yield from _numbered_labels(info, part)
        return _Labels(part, sources, targets, common, labels, names)

    def round(self, info: OperatorInfo, state: _Labels) -> Steps[bool]:
        if state.done == self._rounds:
            return False
        part = state.part
        ones = np.ones(len(state.sources), np.int64)
        own = _tallied(state.targets, state.labels[state.sources], ones, state.common)
        voters, labels, direct, common = _tallied(*part.from_mirrors((yield part.to_owners(own[0], *own[1:]))))
        score = self._direct * direct + self._similarity * common
        order = np.lexsort((labels, score, voters))
        winning = order[np.append(run_starts(voters[order])[1:], len(order)) - 1] if len(order) else order
        new = state.labels.copy()
        new[voters[winning]] = labels[winning]
        going = any((yield [bool((new != state.labels).any())] * info.peers))
        state.labels = new
        state.done += 1
        return going

    def end(self, info: OperatorInfo, state: _Labels) -> Steps[Any]:
        distinct, at = np.unique(state.labels, return_inverse=True)
        asked: list[Column] = yield [distinct if peer == 0 else distinct[:0] for peer in range(info.peers)]
        replies: list[pa.Array] = yield [state.names.take(pa.array(wanted)) for wanted in asked]
        return result_batch(state.part, label=replies[0].take(pa.array(at)))


def _tallied(ends: Column, labels: Column, direct: Column, common: Column) -> tuple[Column, Column, Column, Column]:
    """Return the votes with those for one label at one end added up: whole numbers, so that their order makes no difference."""
    order = np.lexsort((labels, ends))
    ends, labels = ends[order], labels[order]
    starts = run_starts(ends)
    starts = np.union1d(starts, run_starts(labels))
    if not len(starts):
        return ends, labels, direct, common
    return ends[starts], labels[starts], np.add.reduceat(direct[order], starts), np.add.reduceat(common[order], starts)


def _numbered_labels(info: OperatorInfo, part: GraphPartition) -> Steps[tuple[Column, pa.Array]]:
    """Return the number of each node's label, and on worker 0 the labels by number."""
    labels = part.attributes["label"].combine_chunks() if len(part) else None
    if labels is not None and labels.null_count:
        raise SchemaError(f"{info.path}: {labels.null_count} vertices have no label: filter them out, or give them one")
    own = None if labels is None else labels.unique()
    received: list[pa.Array | None] = yield [own if peer == 0 else None for peer in range(info.peers)]
    there = [values for values in received if values is not None]
    names = pa.concat_arrays(there).unique() if there else pa.array([], pa.int64())
    names = names.take(pc.array_sort_indices(names))
    replies: list[Column | None] = (
        yield [None if values is None else pc.index_in(values, names).to_numpy().astype(np.int64) for values in received]
        if info.worker == 0
        else [None] * info.peers
    )
    numbers = replies[0]
    if labels is None or numbers is None:
        return np.empty(0, np.int64), names
    return numbers[pc.index_in(labels, own).to_numpy()], names


# -- neighbours in common ----------------------------------------------------------------------------------------------


def _common_neighbours(info: OperatorInfo, part: GraphPartition, sources: Column, targets: Column) -> Steps[Column]:
    """Return how many neighbours the ends of each edge have in common."""
    own = np.arange(len(part)) * info.peers + info.worker
    numbers = np.concatenate((yield part.to_mirrors(own)))
    places, arriving = part.from_mirrors((yield part.to_owners(part.targets, own[part.sources])))
    near = Lists.of_distinct(np.concatenate((part.sources, places)), np.concatenate((numbers[part.targets], arriving)), len(part))
    received = yield [near.chosen(places) for places in part.mirrored]
    counts = join_columns([counts for counts, _ in received])
    far = Lists(np.concatenate(([0], np.cumsum(counts))), join_columns([values for _, values in received]))
    heads, tails = distinct_pairs(sources, targets)
    shorter = near.lengths(heads) <= far.lengths(tails)
    shared = np.zeros(len(heads), np.int64)
    shared[shorter] = _shared(near, heads[shorter], far, tails[shorter])
    shared[~shorter] = _shared(far, tails[~shorter], near, heads[~shorter])
    width = max(part.mirrors, 1)
    common: Column = shared[np.searchsorted(heads * width + tails, sources * width + targets)]
    return common


def _shared(lists: Lists, places: Column, others: Lists, at: Column) -> Column:
    """Return, for each of ``places``, how many of its values are in the list of ``others`` that is ``at`` the same index."""
    bound = max(int(lists.values.max(initial=0)), int(others.values.max(initial=0))) + 1
    keys = np.repeat(np.arange(len(others.starts) - 1), np.diff(others.starts)) * bound + others.values
    counts_in_common = np.zeros(len(places), np.int64)
    if not len(keys):
        return counts_in_common
    ends = np.cumsum(lists.lengths(places))
    for cut in range(0, int(ends[-1]) if len(ends) else 0, BLOCK):  # all values at once may be many times the edges
        begin, end = np.searchsorted(ends, (cut, cut + BLOCK), side="right")
        counts, values = lists.chosen(places[begin:end])
        wanted = np.repeat(at[begin:end], counts) * bound + values
        hits = keys[np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)] == wanted
        counts_in_common[begin:end] = np.bincount(np.repeat(np.arange(end - begin), counts), hits, end - begin)
    return counts_in_common
