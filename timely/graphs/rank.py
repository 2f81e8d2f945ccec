"""PageRank: every node's rank is shared out along its edges, round after round, until the ranks hold still.

A loop with one operator in it. Each node belongs to one worker, which has its rank and its outgoing edges; in each
round it adds up what its nodes give to each target, and sends every worker one message: the sums for the targets there,
and what all workers must know, which is how much rank is on nodes without edges and how much the ranks have changed.
Where the sums go is fixed, and is told in the first message alone. With a share of each worker a round is complete, which
is known before the frontier tells: a round is one message from each worker to each. All see the same shares and add them
in the same order, so that all come to the same decision whether to go on. The invariant: the ranks of all nodes add up
to 1 in every round.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np

from timely.dataflow import Exchange, OperatorInfo, Pact, Pipeline, Stream
from timely.errors import ConfigurationError
from timely.graphs.decode import name_values
from timely.graphs.encode import encode
from timely.graphs.gather import gather
from timely.graphs.pairs import Column, Floats, Rows, bits, distinct, first, floats, translate
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
    numbers, names = encode(edges, src, dst, vertices=vertices, narrow=True)
    nodes = names.map_batch(lambda batch: batch.column("id").to_numpy())
    with edges.scope.iterative("pagerank") as loop:
        handle, again = loop.feedback()
        ranking: _Ranking[T] = _Ranking(damping, tolerance, rounds)
        inputs: list[tuple[Stream[Product[T, int], Any], Pact]] = [
            (numbers.enter(loop), Exchange(first)),
            (nodes.enter(loop), Exchange(_itself)),
            (again, Pipeline),
        ]
        shares, ranks = gather("pagerank", inputs, 2, ranking.finish, whole=_all_here)
        shares.connect_loop(handle, Exchange(_receiver))
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


Places: TypeAlias = Column | slice
"""Places of a worker's nodes: as a slice, where there are sums for most of them."""


class Share(NamedTuple):
    """What one worker tells another in a round: ``sums`` for the ``places`` it named in the first, and what all must know.

    ``nodes``: how many nodes the sender has. ``loose``: the rank on those without edges. ``moved``: by how much the ranks
    of its nodes changed in the last round.
    """

    receiver: int
    sender: int
    nodes: int
    places: Places | None
    sums: Floats
    loose: float = 0.0
    moved: float = np.inf


def _receiver(share: Share) -> int:
    return share.receiver


def _all_here(info: OperatorInfo, time: Product[Any, int], collected: list[list[Any]]) -> bool:
    """Whether there is a share of each worker. In round 1 those without nodes send none, and then the frontier tells."""
    return sum(map(len, collected[2])) == info.peers


def _itself(nodes: Column) -> Column:
    return nodes


def _by_owner(numbers: Column, peers: int, places: int) -> Column:
    """Return ``owner * places + place`` for each node number, which puts the nodes of one worker side by side.

    >>> _by_owner(np.array([0, 1, 4, 5]), peers=2, places=3).tolist()
    [0, 3, 2, 5]
    """
    if peers == 1:
        return numbers
    place = numbers // peers
    slots = numbers - place * peers
    slots *= places
    slots += place
    return slots


class _Part:
    """One worker's nodes of one outer time: their ranks, and the edges that start at them."""

    __slots__ = (
        "_degrees",
        "_given",
        "_incoming",
        "_length",
        "_loose",
        "_parts",
        "_peers",
        "_slots",
        "_sources",
        "_targets",
        "_total",
        "_worker",
        "ranks",
    )

    def __init__(self, info: OperatorInfo, nodes: int, edges: list[Rows]) -> None:
        self._worker = info.worker
        self._peers = info.peers
        self._sources, self._slots = (np.empty(sum(map(len, edges)), np.int64) for _ in range(2))
        places = max((int(rows[:, 1].max()) // info.peers + 1 for rows in edges), default=0)
        end = 0
        for rows in edges:
            start, end = end, end + len(rows)
            np.floor_divide(rows[:, 0], info.peers, out=self._sources[start:end])
            self._slots[start:end] = _by_owner(rows[:, 1], info.peers, places)
        self._given: Floats = np.empty(len(self._sources))
        degrees = np.bincount(self._sources, minlength=nodes)
        self._loose: Column = np.flatnonzero(degrees == 0)
        self._degrees: Floats = np.maximum(degrees, 1.0)
        self._deal_slots(places)
        self.ranks: Floats = np.zeros(nodes)
        self._total = 0
        self._incoming: dict[int, Places] = {}

    def _deal_slots(self, places: int) -> None:
        """Say which of the sums go to whom, and to which places there: at first each worker has slots for so many ``places``.

        It stays so where most of them are targets, which is quicker to add up; else slots are dealt anew, to targets alone.
        """
        self._length = places * self._peers
        found = distinct([self._slots], self._length)
        bounds = np.searchsorted(found, np.arange(self._peers + 1) * places).tolist()
        targets = [found[start:end] - owner * places for owner, (start, end) in enumerate(pairwise(bounds))]
        self._targets: list[Places] = [*targets]
        self._parts = [slice(start, end) for start, end in pairwise(bounds)]
        if self._length <= 2 * len(found):
            reach = [int(part.max(initial=-1)) + 1 for part in targets]
            self._targets = [slice(0, end) for end in reach]
            self._parts = [slice(owner * places, owner * places + end) for owner, end in enumerate(reach)]
        else:
            slots = np.empty(self._length, np.int64)
            slots[found] = np.arange(len(found))
            translate(self._slots, slots)
            self._length = len(found)

    def first_shares(self) -> list[Share]:
        """Tell all workers how many nodes are here, and for which places of theirs sums will come."""
        none = np.empty(0)
        return [Share(peer, self._worker, len(self.ranks), places, none) for peer, places in enumerate(self._targets)]

    def shares(self, moved: float) -> list[Share]:
        """Share out the ranks."""
        np.take(self.ranks / self._degrees, self._sources, out=self._given, mode="clip")
        sums = np.asarray(np.bincount(self._slots, self._given, self._length), np.float64)
        told = (float(self.ranks[self._loose].sum()), moved)
        return [Share(peer, self._worker, len(self.ranks), None, sums[part], *told) for peer, part in enumerate(self._parts)]

    def begin(self, shares: list[Share]) -> None:
        """Take in the first shares, and give all nodes the same rank."""
        self._total = sum(share.nodes for share in shares)
        self._incoming = {share.sender: share.places for share in shares if share.places is not None}
        self.ranks = np.full(len(self.ranks), 1 / self._total)

    def take(self, shares: list[Share], damping: float) -> None:
        """Make the ranks of the next round."""
        sums = np.zeros(len(self.ranks))
        for share in shares:
            if len(share.sums):  # a worker without nodes has named no places
                sums[self._incoming[share.sender]] += share.sums
        everywhere = (1 - damping + damping * sum(share.loose for share in shares)) / self._total
        sums *= damping
        sums += everywhere
        self.ranks = sums


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
            part = self._parts[outer] = _Part(info, sum(map(len, nodes)), edges)
            return [part.first_shares(), []]
        shares = sorted((share for batch in batches for share in batch), key=lambda share: share.sender)
        part = self._parts.get(outer) or self._parts.setdefault(outer, _Part(info, 0, []))
        moved = np.inf
        if round == 1:
            part.begin(shares)
        elif self._rounds is None and sum(share.moved for share in shares) <= self._tolerance:
            return [[], self._ranks(info, outer)]
        else:
            before = part.ranks
            part.take(shares, self._damping)
            if self._rounds is None:
                moved = float(np.abs(part.ranks - before).sum())
        if round - 1 == self._rounds:
            return [[], self._ranks(info, outer)]
        return [part.shares(moved), []]

    def _ranks(self, info: OperatorInfo, outer: T) -> Rows:
        """Return ``(node, bits of its rank)``, and forget the time."""
        ranks = self._parts.pop(outer).ranks
        return np.vstack((np.arange(len(ranks)) * info.peers + info.worker, bits(ranks))).T
