"""``GraphBuilder``: describes the graph of a scope, before it is compiled.

Whatever has been accepted is well formed: every end of an edge exists, every input has one source, every summary fits the times.
``build`` gives a tracker only if time strictly advances on every cycle. Nodes may be named by anything hashable.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeAlias, TypeVar, overload

from timely.errors import CycleError, GraphError, TimestampError, brief
from timely.order import PartialOrder
from timely.progress.antichain import Antichain
from timely.progress.compiler import Plan
from timely.progress.cycles import find_stuck_cycle, out_of_order
from timely.progress.domain import TimeDomain, time_domain
from timely.progress.engine import make_tracker
from timely.progress.location import Location, Source, Target
from timely.progress.timestamp import PathSummary, lacking
from timely.progress.topology import Topology, Ways
from timely.progress.tracker import Tracker

T = TypeVar("T", bound=PartialOrder)


class SummaryRow(Sequence[Antichain[PathSummary[T]]], Generic[T]):
    """How one input of a node leads to its outputs, where these are very many and few are connected.

    A sequence of ``width`` antichains: those of ``entries``, and empty ones elsewhere. ``GraphError`` for an entry outside.

    >>> from timely.progress import Step
    >>> row = SummaryRow(3, {1: Antichain([Step(0)])})
    >>> list(row), row == [Antichain(), Antichain([Step(0)]), Antichain()]
    ([Antichain([]), Antichain([Step(0)]), Antichain([])], True)
    """

    __slots__ = ("_entries", "_width")

    def __init__(self, width: int, entries: Mapping[int, Antichain[PathSummary[T]]]) -> None:
        for place in entries:
            if not 0 <= place < width:
                raise GraphError(f"a SummaryRow of {width} has no place {place!r}: they are counted from 0")
        self._width = width
        self._entries = entries

    def connected(self) -> Iterable[tuple[int, Antichain[PathSummary[T]]]]:
        """Return the places that are not empty, with their antichains."""
        return [(place, antichain) for place, antichain in self._entries.items() if antichain]

    @overload
    def __getitem__(self, place: int) -> Antichain[PathSummary[T]]: ...
    @overload
    def __getitem__(self, place: slice) -> list[Antichain[PathSummary[T]]]: ...
    def __getitem__(self, place: int | slice) -> Any:
        places = range(self._width)[place]  # counts from the end, and complains, as a list does
        return self._at(places) if isinstance(places, int) else [self._at(each) for each in places]

    def _at(self, place: int) -> Antichain[PathSummary[T]]:
        summaries = self._entries.get(place)
        return Antichain() if summaries is None else summaries

    def __len__(self) -> int:
        return self._width

    def __iter__(self) -> Iterator[Antichain[PathSummary[T]]]:
        return (self._at(place) for place in range(self._width))

    def __eq__(self, other: object, /) -> bool:
        if isinstance(other, SummaryRow):
            return len(self) == len(other) and dict(self.connected()) == dict(other.connected())
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"SummaryRow({self._width}, {self._entries!r})"


def connected(row: Sequence[Antichain[PathSummary[T]]]) -> Iterable[tuple[int, Antichain[PathSummary[T]]]]:
    """Return the places of any row that are not empty, with their antichains; a ``SummaryRow`` costs time for these only.

    >>> from timely.progress import Step
    >>> dict(connected([Antichain(), Antichain([Step(0)])]))
    {1: Antichain([Step(0)])}
    """
    if isinstance(row, SummaryRow):
        return row.connected()
    return [(place, antichain) for place, antichain in enumerate(row) if len(antichain)]


NodeSummaries: TypeAlias = Sequence[Sequence[Antichain[Any]]] | Mapping[int, Mapping[int, Antichain[Any]]]
"""``summaries[input][output]``: the minimal path summaries; empty, or absent from a mapping: not connected. A mapping and rows of
type :class:`SummaryRow` cost time for what is connected only."""


class GraphBuilder(Generic[T]):
    """Collects the nodes and edges of a graph whose times are of type ``time``, and compiles them (Naiad section 2.3).

    A loop of two nodes: what leaves ``body`` comes back to it one later.

    >>> from timely.progress import Antichain, GraphBuilder, Source, Step, Target
    >>> graph = GraphBuilder(int)
    >>> graph.add_node("body", 1, 1, [[Antichain([Step(0)])]])
    >>> graph.add_node("feedback", 1, 1, [[Antichain([Step(1)])]], observes=[])
    >>> graph.add_edge(Source("body", 0), Target("feedback", 0))
    >>> graph.add_edge(Source("feedback", 0), Target("body", 0))
    >>> tracker = graph.build()
    >>> tracker.update(Source("body", 0), 0, +1)
    >>> tracker.propagate()
    [(Target('body', 0), 1, 1)]
    >>> graph.summary(Target("body", 0), Source("feedback", 0)), graph.is_acyclic()
    (Antichain([Step(1)]), True)
    """

    __slots__ = ("_domain", "_edges", "_fitting", "_names", "_nodes", "_observed", "_stay", "_tracker", "_ways")

    @overload
    def __init__(self: GraphBuilder[int]) -> None: ...
    @overload
    def __init__(self, time: type[T]) -> None: ...
    def __init__(self, time: Any = int) -> None:
        self._domain: TimeDomain[T] = time_domain(time)
        self._nodes: dict[Hashable, tuple[int, int]] = {}
        self._names: dict[Hashable, str] = {}
        self._ways: list[tuple[Target, Source, tuple[PathSummary[T], ...]]] = []
        self._edges: dict[Target, tuple[Source, bool]] = {}
        self._observed: list[Target] = []
        self._fitting: set[PathSummary[T]] = set()
        self._stay: tuple[PathSummary[T], ...] = (self._domain.identity,)  # shared: most ways change nothing
        self._tracker: Tracker[T] | None = None

    def add_node(
        self,
        node: Hashable,
        inputs: int,
        outputs: int,
        summaries: NodeSummaries,
        *,
        observes: Iterable[int] | None = None,
        name: str | None = None,
    ) -> None:
        """Add a node; time advances between its inputs and outputs by ``summaries[input][output]``.

        ``observes`` are the inputs whose frontiers ``propagate`` reports; None: all. ``name`` is for messages. ``GraphError`` for
        a node that exists or summaries that do not fit its ports, ``TimestampError`` for a summary that does not fit the times.
        """
        self._not_built()
        if node in self._nodes:
            raise GraphError(f"{self._describe(node)} was added before: give each node a name or number of its own")
        if name is not None:
            self._names[node] = name
        if not all(isinstance(ports, int) and ports >= 0 for ports in (inputs, outputs)):
            raise GraphError(f"{self._describe(node)} cannot have {inputs!r} inputs and {outputs!r} outputs")
        ports = range(inputs) if observes is None else sorted(set(observes))
        if any(port not in range(inputs) for port in ports):
            raise GraphError(f"{self._describe(node)} cannot observe {[*ports]}: it has {inputs} inputs")
        ways = self._read(node, inputs, outputs, summaries)
        self._nodes[node] = (inputs, outputs)
        self._ways.extend(ways)
        self._observed.extend(Target(node, port) for port in ports)

    def add_edge(self, source: Source, target: Target, *, local: bool = False) -> None:
        """Connect an output to an input. An output may lead to several inputs; an input has one source.

        ``local`` promises that the counts at both ends are never negative, so that they can share a cell. ``GraphError`` if an
        end does not exist or the input has a source.
        """
        self._not_built()
        if not isinstance(source, Source) or source.port not in range(self._nodes.get(source.node, (0, 0))[1]):
            raise GraphError(f"no edge can start at {source!r}: {self._ports(source)}")
        if not isinstance(target, Target) or target.port not in range(self._nodes.get(target.node, (0, 0))[0]):
            raise GraphError(f"no edge can end at {target!r}: {self._ports(target)}")
        if target in self._edges:
            raise GraphError(
                f"{target!r} of {self._describe(target.node)} cannot be connected to {source!r}: its source is "
                f"{self._edges[target][0]!r}, and an input has one; bring the two together in a node that has an input for each"
            )
        self._edges[target] = (source, local)

    def build(self) -> Tracker[T]:
        """Compile the graph and return its tracker, in about linear time.

        ``CycleError`` for a cycle on which time does not strictly advance, ``GraphError`` the second time.
        """
        self._not_built()
        topology = self._topology()
        cycle = find_stuck_cycle(topology)
        if cycle is not None:
            nodes = [place.node for place in (topology.locations[number] for number in cycle) if isinstance(place, Target)]
            path = " -> ".join(self._describe(node) for node in [*nodes, nodes[0]])
            why = out_of_order(topology, cycle) or "put a feedback on it whose summary advances every time"
            raise CycleError(f"time does not advance on the cycle {path}: {why}", nodes)
        self._tracker = make_tracker(Plan(topology))
        return self._tracker

    def is_acyclic(self) -> bool:
        """Return whether time strictly advances on every cycle."""
        return self._tracker is not None or find_stuck_cycle(self._topology()) is None

    def summary(self, a: Location, b: Location) -> Antichain[PathSummary[T]]:
        """Return the minimal summaries of the paths from ``a`` to ``b``. ``GraphError`` before ``build``."""
        if self._tracker is None:
            raise GraphError("path summaries are known once the graph is complete: call build() first")
        return self._tracker.summary(a, b)

    def _not_built(self) -> None:
        if self._tracker is not None:
            raise GraphError("the graph was built already and is not changed any more: start a new GraphBuilder")

    def _describe(self, node: Hashable) -> str:
        name = self._names.get(node)
        return f"node {node!r}" if name is None else f"node {node!r} ({name})"

    def _ports(self, end: object) -> str:
        """Return what is wrong with an end of an edge."""
        if not isinstance(end, Source | Target):
            return "edges lead from a Source to a Target"
        if end.node not in self._nodes:
            return f"node {end.node!r} was not added; add nodes before the edges between them"
        inputs, outputs = self._nodes[end.node]
        return f"{self._describe(end.node)} has {inputs} inputs and {outputs} outputs; edges lead from Source to Target"

    def _read(
        self, node: Hashable, inputs: int, outputs: int, summaries: NodeSummaries
    ) -> list[tuple[Target, Source, tuple[PathSummary[T], ...]]]:
        """Return the connected pairs of a node's ports with their summaries, checked."""
        try:
            rows = _rows(inputs, outputs, summaries)
        except (AttributeError, TypeError):  # not a table
            raise GraphError(
                f"the summaries of {self._describe(node)} do not fit its ports: give {inputs} rows, one an input, "
                f"of {outputs} antichains, one for each output"
            ) from None
        ways: list[tuple[Target, Source, tuple[PathSummary[T], ...]]] = []
        for i, pairs in rows:
            for o, antichain in pairs:
                if i not in range(inputs) or o not in range(outputs):
                    raise GraphError(
                        f"there is a summary from input {i} to output {o} of {self._describe(node)}, which has "
                        f"{inputs} inputs and {outputs} outputs"
                    )
                try:
                    elements = tuple(Antichain(antichain))
                except TypeError as error:
                    raise GraphError(
                        f"the summary from input {i} to output {o} of {self._describe(node)} must be an Antichain of path"
                        f" summaries, as in Antichain([{self._domain.identity!r}]), not {antichain!r}: {error}"
                    ) from error
                for summary in elements:
                    self._check(node, summary)
                if elements:
                    stays = type(elements[0]) is type(self._domain.identity) and elements == self._stay
                    ways.append((Target(node, i), Source(node, o), self._stay if stays else elements))
        return ways

    def _check(self, node: Hashable, summary: PathSummary[T]) -> None:
        """Raise unless a summary turns the least time into a time."""
        try:
            if summary in self._fitting:
                return
            missing = lacking(summary)
            if missing:
                raise TypeError(f"it is no path summary, and lacks {missing}")
            arrival = summary.results_in(self._domain.minimum)
            if arrival is not None:
                self._domain.check(arrival)
        except (AttributeError, TypeError, TimestampError) as error:
            identity = brief(self._domain.identity)
            fits = "" if brief(summary) == identity else f"; one that fits is {identity}, which does not advance them"
            raise TimestampError(
                f"{brief(summary)}, a summary of {self._describe(node)}, does not fit the times of the graph, which are of "
                f"type {self._domain.name}: {error}{fits}"
            ) from error
        self._fitting.add(summary)

    def _topology(self) -> Topology[T]:
        """Return the graph so far; the targets and then the sources of each node are numbered in turn."""
        locations: list[Location] = []
        for node, (inputs, outputs) in self._nodes.items():
            locations.extend(Target(node, port) for port in range(inputs))
            locations.extend(Source(node, port) for port in range(outputs))
        numbers = {location: number for number, location in enumerate(locations)}
        forward: list[Ways[T]] = [[] for _ in locations]
        nonnegative = bytearray(len(locations))
        for start, end, summaries in self._ways:
            forward[numbers[start]].append((numbers[end], summaries))
        for target, (source, local) in self._edges.items():
            forward[numbers[source]].append((numbers[target], self._stay))
            if local:
                nonnegative[numbers[source]] = nonnegative[numbers[target]] = 1
        observed = [numbers[target] for target in self._observed]
        return Topology(self._domain, numbers, forward, observed, nonnegative)


def _rows(inputs: int, outputs: int, summaries: NodeSummaries) -> list[tuple[int, Iterable[tuple[int, Antichain[Any]]]]]:
    """Return the summaries of each input by output; ``TypeError`` for a table of another size."""
    if isinstance(summaries, Mapping):
        return [(i, row.items()) for i, row in summaries.items()]
    if len(summaries) != inputs or any(len(row) != outputs for row in summaries):
        raise TypeError
    return [(i, row.connected() if isinstance(row, SummaryRow) else enumerate(row)) for i, row in enumerate(summaries)]
