"""PageRank: every node's rank is shared out along its edges, round after round, until the ranks hold still.

A loop with one operator in it. Each node belongs to one worker, which has its rank and its outgoing edges; in each
round it adds up what its nodes give to each target, and sends every worker one message: the sums for the targets there,
and what all workers must know, which is how much rank is on nodes without edges and how much the ranks have changed.
Where the sums go is fixed, and is told in the first message alone. When a round is complete everywhere, each worker
sees the same messages and adds them in the same order, so that all come to the same decision whether to go on. The
invariant: the ranks of all nodes add up to 1 in every round.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import attrs
import numpy as np

from timely.dataflow import Exchange, OperatorInfo, Stream
from timely.errors import ConfigurationError
from timely.graphs.decode import name_values
from timely.graphs.encode import encode
from timely.graphs.gather import gather
from timely.graphs.pairs import Column, Floats, Rows, bits, distinct, first, floats, join_rows, own_columns, translate
from timely.order import PartialOrder, Product

T = TypeVar("T", bound=PartialOrder)


def pagerank(
    edges: Stream[T, Any],
    src: str = "src",
    dst: str = "dst",
    *,
    vertices: Stream[T, Any] | None = None,
    damping: float = 0.85,
    tolerance: float = 1e-6,
    rounds: int | None = None,
) -> Stream[T, Any]:
    """Return Arrow batches ``(node, rank)``: one row for each node, with ranks as float64 that add up to 1.

    ``edges`` are Arrow batches with the columns ``src`` and ``dst``, both of one type; an edge that comes twice counts
    twice. ``vertices`` are batches with a column ``node``, for nodes that no edge names. All ranks start equal. In a
    round each node gives ``damping`` of its rank to its targets, in equal parts, or to all nodes if it has none; the rest
    is dealt to all nodes. With ``rounds`` that many are done; without, they go on until the ranks have changed by no more
    than ``tolerance`` in a round, summed over all nodes, and are then at most ``tolerance * damping / (1 - damping)``
    from where they lead. Each time is a graph of its own, answered when it is complete (``accumulated`` makes later
    times build upon earlier ones). A round costs a pass over all edges. ``SchemaError``, as the cause of an
    ``OperatorError``, for columns that are missing, have nulls or other types; ``ConfigurationError`` for a ``damping``
    outside of 0 to 1, below 1, for a ``tolerance`` that is not above 0, or for ``rounds`` below 0. Source: Page, Brin,
    Motwani and Winograd 1999.

    >>> import pyarrow as pa
    >>> import timely
    >>> def build(scope):
    ...     edges = pa.record_batch({"src": ["a", "b", "c"], "dst": ["c", "c", "a"]})
    ...     return pagerank(scope.to_stream([0]).map_batch(lambda _: edges), tolerance=1e-9)
    >>> [(time, rows)] = timely.example(build)
    >>> [(node, round(rank, 4)) for node, rank in rows]
    [('a', 0.4635), ('b', 0.05), ('c', 0.4865)]
    """
    check_parameters(damping, tolerance, rounds)
    numbers, names = encode(edges, src, dst, vertices=vertices)
    nodes = names.map_batch(lambda batch: batch.column("id").to_numpy())
    with edges.scope.iterative("pagerank") as loop:
        handle, again = loop.feedback()
        ranking: _Ranking[T] = _Ranking(damping, tolerance, rounds)
        inputs = [
            (numbers.enter(loop), Exchange(first)),
            (nodes.enter(loop), Exchange(_itself)),
            (again, Exchange(_receiver)),
        ]
        shares, ranks = gather("pagerank", inputs, 2, ranking.finish)
        shares.connect_loop(handle)
        found = ranks.leave()
    return name_values(names, found, "rank", floats, lasting=False)


def check_parameters(damping: float, tolerance: float, rounds: int | None) -> None:
    """``ConfigurationError`` for parameters that ``pagerank`` cannot go by.

    >>> check_parameters(0.85, 1e-6, None)
    """
    if not 0 <= damping < 1:
        raise ConfigurationError(f"pagerank: damping must be at least 0 and below 1, not {damping!r}")
    if rounds is None and not tolerance > 0:
        raise ConfigurationError(f"pagerank: tolerance must be above 0, not {tolerance!r}; or say how many rounds")
    if rounds is not None and rounds < 0:
        raise ConfigurationError(f"pagerank: rounds must be 0 or more, not {rounds!r}")


@attrs.frozen
class Share:
    """What one worker tells another in a round: ``sums`` for the ``places`` it named in round 0, and what all must know.

    ``nodes``: how many nodes the sender has. ``loose``: the rank on those without edges. ``moved``: by how much the ranks
    of its nodes changed in the last round.
    """

    receiver: int
    sender: int
    nodes: int
    places: Column
    sums: Floats
    loose: float = 0.0
    moved: float = np.inf


def _receiver(share: Share) -> int:
    return share.receiver


def _itself(nodes: Column) -> Column:
    return nodes


class _Part:
    """One worker's nodes of one outer time: their ranks, and the edges that start at them.

    The array of edges, which nobody else has, is written over with what the rounds need.
    """

    __slots__ = (
        "_degrees",
        "_given",
        "_incoming",
        "_loose",
        "_peers",
        "_slots",
        "_sources",
        "_starts",
        "_targets",
        "_total",
        "_worker",
        "ranks",
    )

    def __init__(self, info: OperatorInfo, nodes: int, edges: Rows) -> None:
        self._worker = info.worker
        self._peers = info.peers
        self._sources, self._slots = own_columns(edges)
        self._sources //= info.peers
        self._given: Floats = np.empty(len(self._sources))
        degrees = np.bincount(self._sources, minlength=nodes)
        self._loose: Column = np.flatnonzero(degrees == 0)
        self._degrees: Floats = np.maximum(degrees, 1.0)
        self._deal_slots()
        self.ranks: Floats = np.zeros(nodes)
        self._total = 0
        self._incoming: dict[int, Column] = {}

    def _deal_slots(self) -> None:
        """Give each target a slot among the sums, those of one worker side by side, and put it in the target's place."""
        last = int(self._slots.max(initial=-1))
        found = distinct([self._slots], last + 1)
        owners = found % self._peers
        grouped = np.argsort(owners, kind="stable")
        slots = np.empty(last + 1, np.int64)
        slots[found[grouped]] = np.arange(len(found))
        translate(self._slots, slots)
        self._targets: Column = found[grouped] // self._peers
        self._starts: Column = np.searchsorted(owners[grouped], np.arange(self._peers + 1))

    def first_shares(self) -> list[Share]:
        """Tell all workers how many nodes are here, and for which places of theirs sums will come."""
        none = np.empty(0)
        return [Share(peer, self._worker, len(self.ranks), self._targets[part], none) for peer, part in self._parts()]

    def shares(self, moved: float) -> list[Share]:
        """Share out the ranks."""
        np.take(self.ranks / self._degrees, self._sources, out=self._given, mode="clip")
        sums = np.asarray(np.bincount(self._slots, self._given, len(self._targets)), np.float64)
        told = (float(self.ranks[self._loose].sum()), moved)
        none = np.empty(0, np.int64)
        return [Share(peer, self._worker, len(self.ranks), none, sums[part], *told) for peer, part in self._parts()]

    def _parts(self) -> list[tuple[int, slice]]:
        return [(peer, slice(self._starts[peer], self._starts[peer + 1])) for peer in range(self._peers)]

    def begin(self, shares: list[Share]) -> None:
        """Take in the first shares, and give all nodes the same rank."""
        self._total = sum(share.nodes for share in shares)
        self._incoming = {share.sender: share.places for share in shares}
        self.ranks = np.full(len(self.ranks), 1 / self._total)

    def take(self, shares: list[Share], damping: float) -> float:
        """Make the ranks of the next round; return by how much they have changed."""
        sums = np.zeros(len(self.ranks))
        for share in shares:
            if len(share.sums):  # a worker without nodes has named no places
                sums[self._incoming[share.sender]] += share.sums
        everywhere = (1 - damping + damping * sum(share.loose for share in shares)) / self._total
        ranks = everywhere + damping * sums
        moved = float(np.abs(ranks - self.ranks).sum())
        self.ranks = ranks
        return moved


class _Ranking(Generic[T]):
    """What the operator in the loop does at the end of each round."""

    __slots__ = ("_damping", "_parts", "_rounds", "_tolerance")

    def __init__(self, damping: float, tolerance: float, rounds: int | None) -> None:
        self._damping = damping
        self._tolerance = tolerance
        self._rounds = rounds
        self._parts: dict[T, _Part] = {}

    def finish(self, info: OperatorInfo, time: Product[T, int], collected: list[list[Any]]) -> list[Any]:
        """Return the shares to send, and the ranks if these are the last."""
        edges, nodes, batches = collected
        outer, round = time
        if round == 0:
            part = self._parts[outer] = _Part(info, sum(map(len, nodes)), join_rows(edges, 2))
            return [part.first_shares(), []]
        shares = sorted((share for batch in batches for share in batch), key=lambda share: share.sender)
        part = self._parts.get(outer) or self._parts.setdefault(outer, _Part(info, 0, join_rows([], 2)))
        moved = np.inf
        if round == 1:
            part.begin(shares)
        elif self._rounds is None and sum(share.moved for share in shares) <= self._tolerance:
            return [[], self._ranks(info, outer)]
        else:
            moved = part.take(shares, self._damping)
        if round - 1 == self._rounds:
            return [[], self._ranks(info, outer)]
        return [part.shares(moved), []]

    def _ranks(self, info: OperatorInfo, outer: T) -> Rows:
        """Return ``(node, bits of its rank)``, and forget the time."""
        ranks = self._parts.pop(outer).ranks
        return np.vstack((np.arange(len(ranks)) * info.peers + info.worker, bits(ranks))).T
