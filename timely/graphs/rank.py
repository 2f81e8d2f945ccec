"""PageRank: every node's rank is shared out along its edges, round after round, until the ranks hold still.

A loop with one operator in it. Each node belongs to one worker, which has its rank and its outgoing edges. In a round a worker
sends every worker one message: the sums for the targets there, the rank on nodes without edges, and how much the ranks have
changed. It adds up what it gives to its own nodes while these messages are under way. With a share of each worker a round is
complete, which is known before the frontier shows it. All workers add up the same shares in the same order, and so decide alike
whether to go on. The invariant: the ranks of all nodes add up to 1 in every round.
"""

from __future__ import annotations

from typing import Any, Final, Generic, NamedTuple, TypeAlias

import attrs
import numpy as np

from timely.dataflow import Exchange, OperatorInfo, Stream
from timely.dataflow.containers.container import partition
from timely.errors import ConfigurationError
from timely.graphs.stages.edge_encoding import encode
from timely.graphs.stages.gathering import gather_loop
from timely.graphs.stages.node_joins import name_values
from timely.graphs.stages.repartitioned_state import register_parts
from timely.graphs.structures.arrays import (
    BLOCK,
    Column,
    Floats,
    Rows,
    bits,
    distinct,
    first,
    floats,
    join_rows,
    joined_blocks,
    second,
)
from timely.memory import Spool
from timely.operators.type_variables import T
from timely.order import Product


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
    """Return Arrow batches ``(node, rank)``: one row for each node; ranks are float64 and add up to 1.

    ``edges`` are Arrow batches with the columns ``src`` and ``dst``, both of one type; repeated edges count. ``vertices`` are
    batches with a column ``node``, for nodes without edges. All ranks start equal. In a round each node gives ``damping`` of
    its rank to its targets in equal parts, or to all nodes if it has none; the rest goes to all nodes. That ends after so many
    ``rounds``, or when the ranks change by at most ``tolerance`` in a round, summed over all nodes. They are then at most
    ``tolerance * damping / (1 - damping)`` from the limit. Each time is a graph of its own. ``SchemaError``, as the cause of an
    ``OperatorError``, for columns that are missing, have nulls or other types; ``ConfigurationError`` for a ``damping`` outside
    of [0, 1), a ``tolerance`` that is not above 0, or ``rounds`` below 0. Source: Page, Brin, Motwani and Winograd 1999.

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
    ranking: _Ranking[T] = _Ranking(damping, tolerance, rounds)
    inputs = [(numbers, Exchange(first)), (nodes, Exchange(_itself))]
    ranks = gather_loop(
        "pagerank", inputs, Exchange(_receiver), ranking.finish, keep=ranking.register, whole=_all_came, meanwhile=ranking.add_up
    )
    return name_values(names, ranks, "rank", floats, lasting=False)


def check_parameters(damping: float, tolerance: float, rounds: int | None) -> None:
    """Raise ``ConfigurationError`` for invalid parameters of ``pagerank``."""
    if not 0 <= damping < 1:
        raise ConfigurationError(f"pagerank: damping must be at least 0 and below 1, not {damping!r}")
    if rounds is None and not tolerance > 0:
        raise ConfigurationError(f"pagerank: tolerance must be above 0, not {tolerance!r}; or say how many rounds")
    if rounds is not None and not (isinstance(rounds, int) and rounds >= 0):
        raise ConfigurationError(f"pagerank: rounds must be 0 or more, not {rounds!r}")


_ONE_BLOCK: Final = 1 << 20
"""So many nodes are one block. For 10 edges each, sorting the edges takes as long as ten rounds gain."""

Places: TypeAlias = Column | slice
"""Places of a worker's nodes: a slice, if there are sums for most of them."""


class _Share(NamedTuple):
    """What one worker sends another in a round. In the first, ranks are 1: the number of nodes is not known before."""

    receiver: int
    sender: int
    sums: Floats
    loose: float
    """The rank on nodes without edges."""
    moved: float
    """By how much the ranks of the sender's nodes changed in the last round."""
    nodes: int = 0
    """In the first round: how many nodes the sender has."""
    places: Places | None = None
    """In the first round: the receiver's places that all sums of this sender are for."""


def _receiver(share: _Share) -> int:
    return share.receiver


def _all_came(info: OperatorInfo, time: Product[Any, int], collected: list[list[Any]]) -> bool:
    """Return whether a share of each worker has come. Workers without nodes send no first one; the frontier shows these."""
    return sum(map(len, collected[2])) == info.peers


def _itself(nodes: Column) -> Column:
    return nodes


class _Edges:
    """Edges from one worker's nodes to the nodes of one worker, and the places there that their sums are for.

    Nodes of large graphs are in blocks whose values fit a processor's cache. Edges are sorted by the block of the target, and by
    that of the source within it. A round reads the values of one block of sources after the other, and writes them in the order
    of the edges. Then it adds them to one block of targets after the other. Source: Beamer, Asanovic and Patterson, "Reducing
    PageRank communication via propagation blocking" (2017).
    """

    @classmethod
    def of(cls, parts: list[Rows] | Spool, nodes: int, peers: int) -> _Edges | _SpooledEdges:
        return _SpooledEdges(parts, peers) if isinstance(parts, Spool) else cls(parts, nodes, peers)

    def __init__(self, parts: list[Rows], nodes: int, peers: int) -> None:
        ends = np.ascontiguousarray(join_rows(parts, 2).T)  # no copy of what comes from one encoder: new memory is slow
        self._sources, self._slots = ends // peers if peers > 1 else ends
        count = len(self._sources)
        self._length = int(self._slots.max()) + 1 if count else 0
        self.places: Places = slice(0, self._length)
        used = distinct([self._slots], self._length)
        if self._length > 2 * len(used):
            slots = np.empty(self._length, self._slots.dtype)
            slots[used] = np.arange(len(used))
            self._slots = slots.take(self._slots)
            self.places, self._length = used, len(used)
        shift = _block_shift(max(nodes, self._length))
        across, down = (-(-places >> shift) if places else 0 for places in (nodes, self._length))
        starts = [0, count]
        if across * down > 1:
            starts = self._sort(shift, across, down)
        blocks = [slice(at << shift, at + 1 << shift) for at in range(max(across, down))]
        self._reads = [
            (blocks[source], some)
            for source in range(across)
            for cell in range(source, across * down, across)
            for some in _pieces(starts[cell], starts[cell + 1])
        ]
        self._adds = [
            (blocks[target], some)
            for target in range(down)
            for some in _pieces(starts[target * across], starts[(target + 1) * across])
        ]

    def _sort(self, shift: int, across: int, down: int) -> list[int]:
        """Sort the edges into cells, one for each block of targets and of sources; return where these start and end."""
        count, cells, mask = len(self), across * down, (1 << shift) - 1
        cell_of = np.empty(count, np.uint16)
        counts = np.zeros(cells, np.int64)
        for some in _pieces(0, count):
            cell_of[some] = (self._slots[some] >> shift) * across + (self._sources[some] >> shift)
            counts += np.bincount(cell_of[some], minlength=cells)
        starts = [0, *np.cumsum(counts).tolist()]
        free = np.array(starts[:-1])
        sources, slots = np.empty((2, count), self._slots.dtype)
        for some in _pieces(0, count):
            order = np.argsort(cell_of[some], kind="stable")  # a radix sort, as the numbers have 16 bits
            here = np.bincount(cell_of[some], minlength=cells)
            at = np.repeat(free - np.cumsum(here) + here, here) + np.arange(len(order))
            sources[at] = (self._sources[some] & mask).take(order)
            slots[at] = (self._slots[some] & mask).take(order)
            free += here
        self._sources, self._slots = sources, slots
        return starts

    def __len__(self) -> int:
        return len(self._sources)

    def degrees(self, nodes: int) -> Column:
        degrees = np.zeros(nodes, np.int64)
        for block, some in self._reads:
            np.add.at(degrees[block], self._sources[some], 1)
        return degrees

    def sums(self, shares: Floats, space: Floats) -> Floats:
        """Return the sums of the ``shares`` of the sources of each target; ``space`` is for a float per edge."""
        for block, some in self._reads:
            np.take(shares[block], self._sources[some], out=space[some], mode="clip")
        sums = np.zeros(self._length)
        for block, some in self._adds:
            np.add.at(sums[block], self._slots[some].astype(np.intp), space[some])
        return sums


def _block_shift(places: int) -> int:
    """Return the power of 2 that is the number of nodes in a block: all if they are few, and never more than 2**16 cells."""
    if places <= _ONE_BLOCK:
        return places.bit_length()
    return max(BLOCK.bit_length() - 1, (places - 1).bit_length() - 8)


def _pieces(start: int, end: int) -> list[slice]:
    """Return slices of up to ``BLOCK`` edges: what is computed for them on the way stays in the cache."""
    return [slice(at, min(at + BLOCK, end)) for at in range(start, end, BLOCK)]


class _SpooledEdges:
    """The same as ``_Edges``, block by block from a spool of ``(source place, slot)``, almost in order of the slots.

    So sums are added where others of the block were added before, which takes a quarter of the time.
    """

    def __init__(self, parts: Spool, peers: int) -> None:
        self._peers = peers
        placed, length = Spool(), 0
        for rows in joined_blocks(parts.drain(), 2 * BLOCK):
            block = rows.T // peers
            greatest = int(block[1].max())
            digits = (block[1] >> max(greatest.bit_length() - 16, 0)).astype(np.uint16)
            placed.append(block.take(np.argsort(digits, kind="stable"), axis=1))
            length = max(length, greatest + 1)
        present = np.zeros(length, np.bool_)
        for _, slots in placed:
            present[slots] = True
        self.places: Places = slice(0, length)
        self._blocks, self._length = placed, length
        count = int(np.count_nonzero(present))
        if length > 2 * count:
            slot_of = (np.cumsum(present) - 1).astype(np.int32)
            self.places, self._length = np.flatnonzero(present), count
            self._blocks = Spool()
            for sources, slots in placed.drain():
                self._blocks.append(np.vstack((sources, slot_of.take(slots))))

    def __len__(self) -> int:
        return 0  # needs no space for all edges

    def degrees(self, nodes: int) -> Column:
        degrees = np.zeros(nodes, np.int64)
        for sources, _ in self._blocks:
            np.add.at(degrees, sources, 1)
        return degrees

    def sums(self, shares: Floats, space: Floats) -> Floats:
        """Return the sums of the ``shares`` of the sources of each target."""
        sums = np.zeros(self._length)
        for sources, slots in self._blocks:
            np.add.at(sums, slots.astype(np.intp), shares.take(sources))
        return sums


class _Part:
    """One worker's nodes of one outer time: their ranks, and the edges that start at them, by the worker that they lead to."""

    def __init__(self, info: OperatorInfo, nodes: int, edges: list[Rows] | Spool) -> None:
        self._worker = info.worker
        limited = isinstance(edges, Spool)
        parts: list[list[Rows] | Spool] = [Spool() if limited else [] for _ in range(info.peers)]
        for rows in edges.drain() if isinstance(edges, Spool) else edges:
            for owner, part in partition(rows, second, info.peers):
                parts[owner].append(part)
        self._edges = [_Edges.of(some, nodes, info.peers) for some in parts]
        self._space: Floats = np.empty(max(map(len, self._edges)))
        degrees = np.sum([edges.degrees(nodes) for edges in self._edges], axis=0)
        self._loose: Column = np.flatnonzero(degrees == 0)
        self._parts: Floats = 1 / np.maximum(degrees, 1)
        self.ranks: Floats = np.ones(nodes)
        self._given: Floats = self.ranks
        self._own: Floats | None = None
        self._total = 0
        self._scale = 1.0
        self._incoming: dict[int, Places] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_space": len(self._space)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _space=np.empty(state["_space"]))

    def first_shares(self) -> list[_Share]:
        """Share out a rank of 1 for each node, with what the first shares say in addition."""
        nodes, places = len(self.ranks), [edges.places for edges in self._edges]
        return [share._replace(nodes=nodes, places=places[share.receiver]) for share in self.shares(np.inf)]

    def shares(self, moved: float) -> list[_Share]:
        """Share out the ranks, without the sums for this worker: ``add_up`` makes those."""
        self._given, self._own = self.ranks * self._parts, None
        none = np.empty(0)
        sums = [none if peer == self._worker else self._sums(peer) for peer in range(len(self._edges))]
        loose = float(self.ranks[self._loose].sum())
        return [_Share(peer, self._worker, part, loose, moved) for peer, part in enumerate(sums)]

    def add_up(self) -> Floats:
        """Return this round's sums for this worker's own nodes."""
        if self._own is None:
            self._own = self._sums(self._worker)
        return self._own

    def _sums(self, peer: int) -> Floats:
        return self._edges[peer].sums(self._given, self._space)

    def begin(self, shares: list[_Share]) -> None:
        """Give all nodes the same rank, with what the first shares say."""
        self._total = sum(share.nodes for share in shares)
        self._scale = 1 / self._total
        self._incoming = {share.sender: share.places for share in shares if share.places is not None}
        self.ranks *= self._scale

    def advance(self, shares: list[_Share], damping: float) -> None:
        """Compute the ranks of the next round."""
        sums = self.add_up()
        if len(sums) < len(self.ranks):
            sums, own = np.zeros(len(self.ranks)), sums
            sums[self._edges[self._worker].places] += own
        for share in shares:
            if len(share.sums):  # not so from a worker without nodes, or from this one
                sums[self._incoming[share.sender]] += share.sums
        scale, self._scale = damping * self._scale, 1.0
        sums *= scale
        sums += (1 - damping + scale * sum(share.loose for share in shares)) / self._total
        self.ranks = sums


@attrs.frozen(eq=False)
class _Ranking(Generic[T]):
    """The finish functions of one worker."""

    _damping: float
    _tolerance: float
    _rounds: int | None
    _parts: dict[T, _Part] = attrs.field(factory=dict)

    def register(self, info: OperatorInfo) -> None:
        """Register the graph and the ranks of each outer time."""
        register_parts(info, self._parts, "rank/1")

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
            part.advance(shares, self._damping)
            if round != self._rounds:
                return [part.shares(float(np.abs(part.ranks - before).sum()) if self._rounds is None else np.inf), []]
        return [[], self._ranks(info, outer)]

    def add_up(self, info: OperatorInfo, time: Product[T, int], collected: list[list[Any]]) -> None:
        """Add up this worker's own sums before all shares are there."""
        outer, round = time
        if round > 0 and outer in self._parts:
            self._parts[outer].add_up()

    def _ranks(self, info: OperatorInfo, outer: T) -> Rows:
        """Return ``(node, bits of its rank)``, and forget the time."""
        ranks = self._parts.pop(outer).ranks
        return np.vstack((np.arange(len(ranks)) * info.peers + info.worker, bits(ranks))).T
