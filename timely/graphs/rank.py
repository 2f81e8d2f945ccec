"""PageRank: every node's rank is shared out along its edges, round after round, until the ranks hold still.

A loop with one operator in it. Each node belongs to one worker, which has its rank and its outgoing edges; in each
round it adds up what its nodes give to each target, and sends every worker one message: the sums for the targets there,
and what all workers must know, which is how much rank is on nodes without edges and how much the ranks have changed.
What it gives to its own nodes it adds up while the others' messages are under way. Where the sums go is fixed, and is told
in the first message alone. With a share of each worker a round is complete, which is known before the frontier tells: a
round is one message from each worker to each. All see the same shares and add them
in the same order, so that all come to the same decision whether to go on. The invariant: the ranks of all nodes add up
to 1 in every round.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np

from timely.dataflow import Distribute, Exchange, OperatorInfo, Pact, Pipeline, Stream
from timely.dataflow.container import partition
from timely.dataflow.partition_arrays import owners_of, partition_rows
from timely.errors import ConfigurationError
from timely.graphs.decode import name_values
from timely.graphs.encode import encode
from timely.graphs.gather import gather
from timely.graphs.pairs import Column, Floats, Rows, bits, distinct, first, floats, second, translate
from timely.order import PartialOrder, Product

T = TypeVar("T", bound=PartialOrder)

_DEALT_BY_BOTH: Final = 4
"""Among so many workers, edges are dealt by the owners of both of their ends at once."""


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
            (numbers.enter(loop), Distribute(_by_both_ends)),
            (nodes.enter(loop), Exchange(_itself)),
            (again, Pipeline),
        ]
        shares, ranks = gather("pagerank", inputs, 2, ranking.finish, whole=_all_here, meanwhile=ranking.add_up)
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
    if rounds is not None and not (isinstance(rounds, int) and rounds >= 0):
        raise ConfigurationError(f"pagerank: rounds must be 0 or more, not {rounds!r}")


_BLOCK: Final = 1 << 17
"""Edges that a processor's cache has room for, with what is read and written for each."""

_NEAR: Final = 1 << 19
"""Up to so many ranks and sums, which are 4 MB, are near enough to a processor to go from one to the other all the time."""

_WINDOW: Final = 1 << 17
"""Sums that the cache which a processor has for itself has room for."""

_WINDOWS: Final = 4
"""Up to so many windows, edges are brought into the order of those that they lead to: a pass over them for each window, once."""


Places: TypeAlias = Column | slice
"""Places of a worker's nodes: as a slice, where there are sums for most of them."""


class Share(NamedTuple):
    """What one worker tells another in a round: ``sums`` for the ``places`` it named in the first, and what all must know.

    ``loose``: the rank on nodes without edges. ``moved``: by how much the ranks of its nodes changed in the last round.
    ``nodes``: how many nodes the sender has, which is told in the first, too. How many there are together is known only after
    that one: in it, each node has rank 1, and the receiver divides.
    """

    receiver: int
    sender: int
    sums: Floats
    loose: float
    moved: float
    nodes: int = 0
    places: Places | None = None


def _receiver(share: Share) -> int:
    return share.receiver


def _all_here(info: OperatorInfo, time: Product[Any, int], collected: list[list[Any]]) -> bool:
    """Whether there is a share of each worker. At first those without nodes send none, and then the frontier tells."""
    return sum(map(len, collected[2])) == info.peers


def _by_both_ends(_: object, edges: Rows, workers: int) -> Iterable[tuple[int, Rows]]:
    """Deal edges to the workers of their sources; of few workers, each gets those to the nodes of one worker as one part."""
    if not 1 < workers <= _DEALT_BY_BOTH:
        return partition(edges, first, workers)
    owners = owners_of(edges[:, 0], workers) * workers + owners_of(edges[:, 1], workers)
    return ((owner // workers, part) for owner, part in partition_rows(edges, owners, workers * workers))


def _itself(nodes: Column) -> Column:
    return nodes


class _Edges:
    """Edges from one worker's nodes to the nodes of one worker, and where their sums go there.

    To add up what is given to one worker's nodes at a time keeps the sums, and the edges' shares of them, in the caches of a
    processor that other workers do not share.
    """

    __slots__ = ("_blockwise", "_length", "_slots", "_sources", "places")

    def __init__(self, parts: list[Rows], nodes: int, peers: int) -> None:
        count = sum(map(len, parts))
        reach = max((int(rows[:, 1].max(initial=-1)) for rows in parts), default=-1) // peers + 1
        windows = -(-reach // _WINDOW)
        near = nodes + reach <= _NEAR
        self._blockwise = near or windows <= _WINDOWS
        if 1 < windows <= _WINDOWS and not near:
            parts = _by_window(parts, peers * _WINDOW, windows)
        self._sources, self._slots = (np.empty(count, np.int64) for _ in range(2))
        end = 0
        for rows in parts:
            start, end = end, end + len(rows)
            for column, ends in enumerate((self._sources, self._slots)):
                np.floor_divide(rows[:, column], peers, out=ends[start:end])
        self.places: Places = slice(0, reach)
        self._length = reach
        if count >= 4 * reach:
            return  # one sum for each place is little beside the edges, whichever of them are targets
        found = distinct([self._slots], reach)
        if reach > 2 * len(found):
            slots = np.empty(reach, np.int64)
            slots[found] = np.arange(len(found))
            translate(self._slots, slots)
            self.places, self._length = found, len(found)

    def __len__(self) -> int:
        return len(self._sources)

    def degrees(self, nodes: int) -> Column:
        """Return how many of the edges start at each node."""
        return np.bincount(self._sources, minlength=nodes)

    @property
    def block(self) -> int:
        """How many edges ``sums`` needs room for."""
        return min(len(self), _BLOCK) if self._blockwise else len(self)

    def sums(self, given: Floats, room: Floats) -> Floats:
        """Return the sums of what each source has ``given`` to each of its targets, with ``room`` for the edges of a block.

        Of too many ranks and sums, those of all edges are read first, and then all sums made: half as much is looked up at random
        at a time.
        """
        if not self._blockwise:
            values = np.take(given, self._sources, out=room[: len(self)], mode="clip")
            return np.asarray(np.bincount(self._slots, values, self._length), np.float64)
        sums = np.zeros(self._length)
        for start in range(0, len(self), _BLOCK):
            sources, slots = self._sources[start : start + _BLOCK], self._slots[start : start + _BLOCK]
            np.add.at(sums, slots, np.take(given, sources, out=room[: len(sources)], mode="clip"))
        return sums


def _by_window(parts: list[Rows], width: int, windows: int) -> list[Rows]:
    """Return edges in the order of the windows of ``width`` nodes that they lead to, and within one in theirs."""
    dealt: list[list[Rows]] = [[] for _ in range(windows)]
    for rows in parts:
        for window, part in partition_rows(rows, (rows[:, 1] // width).astype(np.uint8), windows):
            dealt[window].append(part)
    return [part for window in dealt for part in window]


class _Part:
    """One worker's nodes of one outer time: their ranks, and the edges that start at them, by whom they lead to."""

    __slots__ = ("_edges", "_given", "_incoming", "_loose", "_own", "_parts", "_room", "_scale", "_total", "_worker", "ranks")

    def __init__(self, info: OperatorInfo, nodes: int, edges: list[Rows]) -> None:
        self._worker = info.worker
        dealt: list[list[Rows]] = [[] for _ in range(info.peers)]
        for rows in edges:
            together = info.peers <= _DEALT_BY_BOTH
            for owner, part in [(rows[0, 1] % info.peers, rows)] if together else partition(rows, second, info.peers):
                dealt[owner].append(part)
        self._edges = [_Edges(parts, nodes, info.peers) for parts in dealt]
        self._room: Floats = np.empty(max(edges.block for edges in self._edges))
        degrees = np.sum([edges.degrees(nodes) for edges in self._edges], axis=0)
        self._loose: Column = np.flatnonzero(degrees == 0)
        self._parts: Floats = 1 / np.maximum(degrees, 1)
        self.ranks: Floats = np.ones(nodes)
        self._given: Floats = self.ranks
        self._own: Floats | None = None
        self._total = 0
        self._scale = 1.0
        self._incoming: dict[int, Places] = {}

    def first_shares(self) -> list[Share]:
        """Share out a rank of 1 for each node, and tell all workers how many nodes are here, and which places sums are for."""
        nodes = len(self.ranks)
        told = [edges.places for edges in self._edges]
        return [share._replace(nodes=nodes, places=told[share.receiver]) for share in self.shares(np.inf)]

    def shares(self, moved: float) -> list[Share]:
        """Share out the ranks. What stays here is added up when the others' part is under way: ``add_up``."""
        self._given, self._own = self.ranks * self._parts, None
        none = np.empty(0)
        sums = [none if peer == self._worker else self._sums(peer) for peer in range(len(self._edges))]
        loose = float(self.ranks[self._loose].sum())
        return [Share(peer, self._worker, part, loose, moved) for peer, part in enumerate(sums)]

    def add_up(self) -> Floats:
        """Return the sums of what this worker's nodes give each other in this round."""
        if self._own is None:
            self._own = self._sums(self._worker)
        return self._own

    def _sums(self, peer: int) -> Floats:
        return self._edges[peer].sums(self._given, self._room)

    def begin(self, shares: list[Share]) -> None:
        """Take in what the first shares tell, and give all nodes the same rank."""
        self._total = sum(share.nodes for share in shares)
        self._scale = 1 / self._total
        self._incoming = {share.sender: share.places for share in shares if share.places is not None}
        self.ranks *= self._scale

    def take(self, shares: list[Share], damping: float) -> None:
        """Make the ranks of the next round."""
        sums = self.add_up()
        if len(sums) < len(self.ranks):
            sums, own = np.zeros(len(self.ranks)), sums
            sums[self._edges[self._worker].places] += own
        for share in shares:
            if len(share.sums):  # a worker without nodes has named no places, and what stays here is there already
                sums[self._incoming[share.sender]] += share.sums
        scale, self._scale = damping * self._scale, 1.0
        sums *= scale
        sums += (1 - damping + scale * sum(share.loose for share in shares)) / self._total
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
        if round == 1:
            part.begin(shares)
        moved = sum(share.moved for share in shares)
        if moved > self._tolerance if self._rounds is None else round <= self._rounds:
            before = part.ranks
            part.take(shares, self._damping)
            if round != self._rounds:
                return [part.shares(float(np.abs(part.ranks - before).sum()) if self._rounds is None else np.inf), []]
        return [[], self._ranks(info, outer)]

    def add_up(self, info: OperatorInfo, time: Product[T, int], collected: list[list[Any]]) -> None:
        """Do what can be done before all shares are there."""
        outer, round = time
        if round > 0 and outer in self._parts:
            self._parts[outer].add_up()

    def _ranks(self, info: OperatorInfo, outer: T) -> Rows:
        """Return ``(node, bits of its rank)``, and forget the time."""
        ranks = self._parts.pop(outer).ranks
        return np.vstack((np.arange(len(ranks)) * info.peers + info.worker, bits(ranks))).T
