"""The operators as methods: ``stream.map(f)`` is ``timely.operators.map(stream, f)``, with the same signature and docstring."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from timely import dataflow, files, operators
from timely.dataflow import ScopeBuilder, Stream
from timely.dataflow.method_bases import ScopeBase, StreamBase
from timely.dataflow.scope_builder import ADVICE
from timely.order import PartialOrder

if TYPE_CHECKING:
    from timely.connect import SinkConnector, SourceConnector
    from timely.inspect import Picture

T = TypeVar("T", bound=PartialOrder)
D = TypeVar("D")


def concatenate(scope: ScopeBuilder[T], streams: Iterable[Stream[T, D]], *, name: str | None = None) -> Stream[T, D]:
    """Return the stream of the records of all ``streams``, each at its time; there may be none.

    ``GraphError`` for what is no stream, or no list of them.

    >>> import timely
    >>> timely.example(lambda scope: scope.concatenate([scope.to_stream([1]), scope.to_stream([2])]))
    [(0, [1, 2])]
    """
    return operators.concatenate(streams, scope, name=name)


def picture(scope: ScopeBuilder[Any]) -> Picture:
    """Return a picture of the scope as it is now, for a notebook, as SVG, Mermaid or HTML.

    >>> import timely
    >>> with timely.Worker().dataflow(name="df") as scope:
    ...     _ = scope.empty()
    >>> scope.picture().svg()[:4]
    '<svg'
    """
    from timely import inspect

    return inspect.picture(scope)


def read(
    scope: ScopeBuilder[int], source: SourceConnector, *, every: float = 0.1, rows: int = 4096, name: str | None = None
) -> Stream[int, Any]:
    """Return the stream of a source's changes, ``(row, difference)``, or of its Arrow batches.

    An epoch lasts ``every`` seconds; with 0 each read is one. A read takes about ``rows`` rows of a partition. A run that resumes
    from a checkpoint reads on from the positions in it, on any number of workers; without ``timely.recovery.Recovery`` each run
    begins anew. ``GraphError`` in a nested scope, or one whose times are no whole numbers.

    >>> import timely
    >>> from timely.testing import MemoryBroker, MemorySource
    >>> broker = MemoryBroker({"a": [("to", 1)], "b": [("be", 1)]})
    >>> timely.example(lambda scope: scope.read(MemorySource(broker), every=0))
    [(0, [('be', 1), ('to', 1)])]
    """
    from timely import connect

    return connect.read(scope, source, every=every, rows=rows, name=name)


def write(
    stream: Stream[int, Any], sink: SinkConnector, *, columns: Sequence[str] | None = None, name: str | None = None
) -> None:
    """Write a stream of changes, ``(row, difference)``, or of Arrow batches of added rows, to a sink, exactly once.

    The sink has what a checkpoint holds: it gets the net changes since the last one as one epoch, when the checkpoint is durable,
    so ``timely.connect.run`` or ``recovery.checkpoint()`` moves it. One worker writes. ``ConfigurationError`` without a
    ``timely.recovery.Recovery``, ``ConnectorError`` where the sink has rows of other checkpoints.

    >>> import timely
    >>> from timely import connect
    >>> from timely.recovery import MemoryStore, Recovery
    >>> from timely.testing import MemoryBroker, MemorySink
    >>> broker = MemoryBroker()
    >>> with timely.Worker() as worker, Recovery(worker, MemoryStore()) as recovery:
    ...     with worker.dataflow(int) as scope:
    ...         scope.to_stream([(("to",), 1), (("be",), 1), (("be",), -1)]).write(MemorySink(broker))
    ...     connect.run(recovery)
    >>> dict(broker.rows)
    {('to',): 1}
    """
    from timely import connect

    connect.write(stream, sink, columns=columns, name=name)


class StreamMethods:
    """The operators of a stream."""

    __slots__ = ()

    accumulate = operators.accumulate
    aggregate = operators.aggregate
    binary = operators.binary
    binary_frontier = operators.binary_frontier
    binary_notify = operators.binary_notify
    branch = operators.branch
    branch_when = operators.branch_when
    broadcast = operators.broadcast
    capture = operators.capture
    capture_into = operators.capture_into
    concat = operators.concat
    connect_loop = operators.connect_loop
    count = operators.count
    delay = operators.delay
    delay_batch = operators.delay_batch
    distinct = operators.distinct
    exchange = operators.exchange
    filter = operators.filter
    flat_map = operators.flat_map
    group_by = operators.group_by
    inspect = operators.inspect
    inspect_batch = operators.inspect_batch
    inspect_progress = operators.inspect_progress
    inspect_time = operators.inspect_time
    join = operators.join
    map = operators.map
    map_async = operators.map_async
    map_batch = operators.map_batch
    ok_err = operators.ok_err
    partition = operators.partition
    probe = operators.probe
    reduce_by_key = operators.reduce_by_key
    sink = operators.sink
    state_machine = operators.state_machine
    unary = operators.unary
    unary_frontier = operators.unary_frontier
    unary_notify = operators.unary_notify
    value_counts = operators.value_counts
    vertex = operators.vertex
    write = write
    write_csv = files.write_csv
    write_ipc = files.write_ipc
    write_json = files.write_json
    write_parquet = files.write_parquet


class ScopeMethods:
    """The operators that begin in a scope."""

    def _repr_html_(self: Any) -> str:  # what a notebook shows of a scope
        return picture(self).svg()

    add_scope = dataflow.add_scope
    concatenate = concatenate
    empty = operators.empty
    feedback = operators.feedback
    from_async = operators.from_async
    input_from = operators.input_from
    iterator_source = operators.iterator_source
    new_input = operators.new_input
    new_unordered_input = operators.new_unordered_input
    picture = picture
    read = read
    read_arrow = files.read_arrow
    read_csv = files.read_csv
    read_ipc = files.read_ipc
    read_json = files.read_json
    read_parquet = files.read_parquet
    replay = operators.replay
    source = operators.source
    to_stream = operators.to_stream


def _assemble(source: type, base: type) -> None:
    for name, value in vars(source).items():
        if not name.startswith("__"):
            setattr(base, name, value)


ADVICE.update(
    dict.fromkeys(
        (operators.InputHandle, operators.UnorderedHandle, operators.LoopHandle),
        "what returns a handle returns its stream too, as in `handle, stream = scope.new_input()`: give that stream",
    )
)
ADVICE.update(
    dict.fromkeys((operators.ProbeHandle, operators.Capture), "give the stream on which probe() or capture() was called")
)
_assemble(StreamMethods, StreamBase)
_assemble(ScopeMethods, ScopeBase)
