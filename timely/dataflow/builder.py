"""``OperatorBuilder``: the one way to make an operator, for ``timely.operators`` as for anyone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from timely.dataflow.capability import Capability
from timely.dataflow.channel import ExchangePusher, Pusher, QueuePusher
from timely.dataflow.info import OperatorInfo, blaming
from timely.dataflow.operator import Operator
from timely.dataflow.origin import origin
from timely.dataflow.pact import Distribute, Exchange, Pact, PipelinePact, Spill
from timely.dataflow.ports import InputPort, OutputPort
from timely.dataflow.scope_builder import ScopeBuilder, Stream, check_scope, instead_of, way_between
from timely.dataflow.spill import Queue, SpillQueue
from timely.errors import ErrorSubject, GraphError, brief
from timely.order import PartialOrder
from timely.progress import Antichain, PathSummary, Source, SummaryRow, Target
from timely.scopes import INGRESS

T = TypeVar("T", bound=PartialOrder)
D = TypeVar("D")

S = TypeVar("S", covariant=True)


class Least(Protocol[S]):
    """An antichain that is only read, so that one of ``Step`` is one of path summaries of ``int`` to a type checker."""

    @property
    def elements(self) -> tuple[S, ...]:
        """The elements."""


Ways: TypeAlias = Mapping[int, Least[PathSummary[T]]] | Sequence[Least[PathSummary[T]]] | Least[PathSummary[T]]
"""How a port leads to those on the other side: an antichain for some, by number; one for each, in order; or one for all."""


class Waiting(Protocol[T]):
    """An input that messages wait at."""

    queue: Queue[T]

    @property
    def label(self) -> str: ...

    def place(self) -> ErrorSubject: ...


def connect(scope: ScopeBuilder[T], stream: Stream[T, Any], pact: Pact, target: Target, input: Waiting[T]) -> None:
    """Connect ``stream`` to ``target``, where messages wait at ``input``.

    ``GraphError`` for a stream of another scope, ``GraphError`` for what is no stream or no pact.
    """
    label = input.label
    if not isinstance(stream, Stream):
        raise GraphError(f"{label} reads a timely.Stream, not {brief(stream)}: {instead_of(stream)}")
    if stream.scope is not scope:
        raise GraphError(f"{label} cannot read a stream of scope {stream.scope.path!r}: {way_between(stream.scope, scope)}")
    queue = input.queue
    if isinstance(pact, Spill):
        queue, pact = SpillQueue(pact.threshold, pact.reserve, label), pact.pact
    if not isinstance(pact, Exchange | Distribute | PipelinePact):
        raise GraphError(
            f"{label}: a pact is timely.Pipeline, timely.Exchange(key), timely.Distribute(partition) or timely.Spill(pact),"
            f" not {brief(pact)}"
        )
    local: QueuePusher[T] = QueuePusher(queue, scope.subgraph, target.node)
    pusher: Pusher[T] = local
    if not isinstance(pact, PipelinePact):
        node = stream.source.node
        sender = None if node == INGRESS else scope.subgraph.children[node].scope
        closing = sender.closing if isinstance(pact, Exchange) and isinstance(sender, Operator) else None
        pusher = ExchangePusher(pact.parts, local, scope.allocator, label, input.place, closing)
    scope.subgraph_builder.add_edge(stream.source, target, local=isinstance(pact, PipelinePact))
    input.queue = queue
    stream.tee.append(pusher)


def make(scope: ScopeBuilder[Any], name: str, factory: Callable[..., S], *args: object) -> S:
    """Return ``factory(*args)``, for an operator ``name`` in ``scope``; ``OperatorError`` for what it raises."""
    check_scope(scope, name)
    place = ErrorSubject("operator", name, f"{scope.path}/{name}#{len(scope.subgraph.children)}", str(origin() or ""))
    with blaming(place, scope.allocator.index):
        return factory(*args)


class OperatorBuilder(Generic[T]):
    """Builds one operator in ``scope``: add its inputs and outputs, then ``build(constructor)``.

    The summaries of a port are a mapping from the ports on the other side, added before it, to antichains of path summaries; a
    list with one antichain for each; or one antichain for all. The default is the identity to all. An empty antichain
    disconnects, and so does a mapping without the port.

    >>> import timely
    >>> def doubled(stream):
    ...     builder = timely.OperatorBuilder(stream.scope, "doubled")
    ...     builder.new_input(stream, timely.Pipeline)
    ...     output = builder.new_output()
    ...     builder.build(lambda capabilities, info: lambda input, output: input.forward(output, lambda batch: 2 * batch))
    ...     return output
    >>> timely.example(lambda scope: scope.to_stream([1, 2]).apply(doubled))
    [(0, [1, 1, 2, 2])]
    """

    def __init__(self, scope: ScopeBuilder[T], name: str) -> None:
        if not isinstance(name, str):
            raise GraphError(f"the name of an operator is a string, not {brief(name)}: a pact comes before the name")
        check_scope(scope, name)
        self._scope = scope
        self._operator: Operator[T] = Operator(name, scope.subgraph_builder, scope.allocator, scope.identities)
        self._rows: list[dict[int, Antichain[PathSummary[T]]]] = []
        self._stay: Antichain[PathSummary[T]] = Antichain([scope.subgraph.domain.identity])
        self._built = False
        scope.unfinished.add(self._operator.path)

    @property
    def info(self) -> OperatorInfo:
        """The operator's information, as the constructor gets it."""
        return self._operator.info

    def new_input(
        self,
        stream: Stream[T, D],
        pact: Pact,
        summaries: Ways[T] | None = None,
        *,
        notify: bool = True,
    ) -> InputPort[T, D]:
        """Add an input that reads ``stream``; ``summaries`` lead to the outputs added so far.

        With ``notify=False`` the logic only runs when there is input, and does not see the frontier. ``GraphError`` for a stream
        of another scope, ``GraphError`` for summaries that do not fit these outputs.
        """
        port = self.reserve_input(summaries, notify=notify)
        self.connect(port, stream, pact)
        return port

    def reserve_input(self, summaries: Ways[T] | None = None, *, notify: bool = True) -> InputPort[T, Any]:
        """Add an input that is connected later, as a loop's is."""
        self._check_open()
        index, outputs = len(self._operator.input_ports), len(self._operator.output_ports)
        row = self._ways(summaries, outputs, f"input {index}", "to a missing output")
        port: InputPort[T, Any] = InputPort(self._operator, index, notify)
        if notify:
            port.elements.append(self._scope.subgraph.domain.minimum)  # nothing has passed before the graph is complete
        self._operator.input_ports.append(port)
        self._rows.append(row)
        return port

    def connect(self, port: InputPort[T, D], stream: Stream[T, D], pact: Pact) -> None:
        """Connect a reserved input to a stream of the operator's own scope."""
        connect(self._scope, stream, pact, Target(self._operator.index, port.index), port)

    def new_output(self, summaries: Ways[T] | None = None) -> Stream[T, Any]:
        """Add an output and return its stream; ``summaries`` lead to it from the inputs added so far.

        ``GraphError`` for summaries that do not fit these inputs.
        """
        self._check_open()
        index = len(self._operator.output_ports)
        column = self._ways(summaries, len(self._rows), f"output {index}", "from a missing input")
        for i, antichain in column.items():
            self._rows[i][index] = antichain
        tee: list[Pusher[T]] = []
        self._operator.output_ports.append(OutputPort(self._operator, index, tee))
        return Stream(self._scope, Source(self._operator.index, index), tee)

    def _check_open(self) -> None:
        if self._built:
            raise GraphError(f"operator {self._operator.path!r} is built already: add its ports before, and build it once")

    def _ways(self, summaries: Any, ports: int, port: str, missing: str) -> dict[int, Antichain[PathSummary[T]]]:
        """Return the ``summaries`` of a port, by port on the other side, where there are ``ports``."""
        if summaries is None or isinstance(summaries, Antichain):
            return dict.fromkeys(range(ports), self._stay if summaries is None else summaries)
        place = f"operator {self._operator.path!r}: {port}"
        if isinstance(summaries, Mapping):
            ways = dict(summaries)
        elif isinstance(summaries, Sequence) and len(summaries) == ports:
            ways = dict(enumerate(summaries))
        else:
            raise GraphError(
                f"{place} needs summaries by port, as in {{0: {self._stay!r}}}, or a list of one antichain for each of the"
                f" {ports} ports added on the other side, not {summaries!r}"
            )
        for other, antichain in ways.items():
            if other not in range(ports):
                raise GraphError(f"{place} has a summary {missing} {other}: add the ports that it names before it")
            try:
                ways[other] = antichain if isinstance(antichain, Antichain) else Antichain(antichain)
            except TypeError:
                raise GraphError(
                    f"{place}: a summary is an Antichain of path summaries, as in {self._stay!r}, not {antichain!r}"
                ) from None
        return ways

    def build(
        self, constructor: Callable[[list[Capability[T]], OperatorInfo], Callable[..., object]], *arguments: object
    ) -> None:
        """Make the operator. ``constructor(capabilities, info)`` gets one initial capability per output and returns the logic.

        The logic is called with the input ports, the output ports and then ``arguments``. While it returns ``True`` it is run
        again in the next step, and the dataflow is not complete.
        """
        self._check_open()
        self._built = True
        operator = self._operator
        for port, row in zip(operator.input_ports, self._rows, strict=True):
            port.summaries = SummaryRow(len(operator.output_ports), row)
            port.identities = frozenset([output for output, summaries in row.items() if summaries == self._stay])
        if not operator.input_ports:
            operator.info.activator.wait_for_peers()
        operator.construct(constructor, arguments)
        self._scope.unfinished.discard(operator.path)
