"""The scope builder: where a dataflow, and each scope nested in it, is put together.

A builder wraps one ``Subgraph``: operators and streams are added to it until the ``with`` block of the outermost one ends, which
compiles the whole nesting; nothing can be added after that. Its operator methods are a façade, as the stream's are.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from timely.dataflow.channel import Allocator
from timely.dataflow.scope_context import ScopeContext
from timely.errors import GraphError, brief
from timely.order import PartialOrder, Product
from timely.progress import PathSummary, ProgressExchange
from timely.scopes import Scope, Subgraph

if TYPE_CHECKING:
    from timely.dataflow.capability import Capability
    from timely.dataflow.origin import Origin
    from timely.dataflow.pact import Pact
    from timely.dataflow.stream import Stream
    from timely.inspect import Picture
    from timely.operators.generic import SourceConstructor
    from timely.operators.input import InputHandle
    from timely.operators.loops import LoopHandle
    from timely.operators.probes import ProbeHandle
    from timely.operators.unordered import UnorderedHandle

T = TypeVar("T", bound=PartialOrder)
T2 = TypeVar("T2", bound=PartialOrder)
D = TypeVar("D")

Exchanged = ProgressExchange[tuple[int, int, Any]]


class ScopeBuilder(Generic[T]):
    """Builds one scope with times of type ``T``: its methods add operators and nested scopes.

    ``path`` names it in errors, ``index`` is its number in the scope around it (``parent``).
    """

    def __init__(
        self,
        name: str,
        time: Any,
        allocator: Allocator,
        parent: ScopeBuilder[Any] | None,
        wake: Callable[[], None] | None,
        exchange: Exchanged | None,
    ) -> None:
        if not isinstance(name, str):
            raise GraphError(f"the name of a scope is a string, not {brief(name)}: scoped(time_type) opens one with other times")
        index = -1 if parent is None else len(parent.subgraph.children)
        self.name = name
        self.index = index
        self.path: str = f"/{name}" if parent is None else f"{parent.path}/{name}#{index}"
        self.time = time
        self.allocator = allocator
        self.parent = parent
        self.root: ScopeBuilder[Any] = self if parent is None else parent.root
        self.exchange = exchange
        self.checks: list[Callable[[], None]] = [] if parent is None else parent.root.checks
        self.given: dict[str, tuple[str, Origin | None]] = {}  # what operators send of what every worker may have, by their paths
        self.unfinished: set[str] = set() if parent is None else parent.root.unfinished
        self.scopes: list[Subgraph[Any, Any]] = [] if parent is None else parent.root.scopes
        if parent is not None:
            wake = functools.partial(parent.subgraph.activate, index)
        self.subgraph: Subgraph[Any, T] = Subgraph(
            name,
            self.path,
            time if parent is None else parent.time,
            time,
            peers=allocator.peers,
            wake=wake,
            exchange=exchange,
            number=len(self.scopes),
        )
        self.scopes.append(self.subgraph)
        if parent is not None:
            parent.subgraph.add_child(name, self.subgraph)

    def __repr__(self) -> str:
        return f"ScopeBuilder({self.path!r})"

    @property
    def has_run(self) -> bool:
        """Whether any operator of the dataflow has run."""
        return any(getattr(child.scope, "call", 0) for subgraph in self.scopes for child in subgraph.children)

    # -- nesting ---------------------------------------------------------------------------------------------------

    def scoped(self, time_type: type[T2], name: str | None = None) -> AbstractContextManager[ScopeBuilder[T2]]:
        """Open a scope nested in this one, with times of ``time_type``, which must refine those of this scope."""
        return ScopeContext(self._nested(name or "scoped", time_type), "scoped")

    def region(self, name: str | None = None) -> AbstractContextManager[ScopeBuilder[T]]:
        """Open a nested scope with the same times: one box to the outside, at no cost to progress.

        >>> import timely
        >>> def build(scope):
        ...     with scope.region() as inner:
        ...         return scope.to_stream([1, 2]).enter(inner).map(lambda x: x + 1).leave()
        >>> timely.example(build)
        [(0, [2, 3])]
        """
        return ScopeContext(self._nested(name or "region", self.time), "region")

    def iterative(self, name: str | None = None) -> AbstractContextManager[ScopeBuilder[Product[T, int]]]:
        """Open a nested scope for a loop: times become ``Product(outer, round)``.

        >>> import timely
        >>> def build(scope):
        ...     with scope.iterative() as loop:
        ...         handle, again = loop.feedback()
        ...         small, large = scope.to_stream([1, 5]).enter(loop).concat(again).branch(lambda x: x >= 100)
        ...         small.map(lambda x: 2 * x).connect_loop(handle)
        ...         return large.leave()
        >>> timely.example(build)
        [(0, [128, 160])]
        """
        product: Any = Product  # the coordinates are known only now, so that a type checker has nothing to say of them
        return ScopeContext(self._nested(name or "iterative", product[self.time, int]), "iterative")

    @contextmanager
    def _nested(self, name: str, time: Any) -> Iterator[ScopeBuilder[Any]]:
        yield ScopeBuilder(name, time, self.allocator, self, None, self.exchange)

    def add_scope(
        self,
        scope_object: Scope[T],
        inputs: Sequence[Stream[T, Any] | tuple[Stream[T, Any], Pact]] = (),
        name: str | None = None,
    ) -> list[Stream[T, Any]]:
        """Plug in a ``Scope`` of one's own; return the streams of its outputs. See ``timely.dataflow.custom_scope.add_scope``."""
        from timely.dataflow import custom_scope

        return custom_scope.add_scope(self, scope_object, inputs, name)

    def picture(self) -> Picture:
        """Return a picture of the scope as it is now, for a notebook, as SVG, Mermaid or HTML. See ``timely.inspect.picture``.

        >>> import timely
        >>> with timely.Worker().dataflow(name="df") as scope:
        ...     _ = scope.empty()
        >>> scope.picture().svg()[:4]
        '<svg'
        """
        from timely import inspect

        return inspect.picture(self)

    def finish(self) -> None:
        """Compile the whole nesting. ``GraphError`` if an operator or loop in it was begun and never finished."""
        for check in self.checks:
            check()
        if self.unfinished:
            raise GraphError(f"operators were begun and never built: {', '.join(sorted(self.unfinished))}; call build(...)")
        self.subgraph.get_internal_summary()
        self.subgraph.set_external_summary((), ())

    # -- operators: each is the function of the same name in timely.operators ----------------------------------------

    def new_input(self) -> tuple[InputHandle[T, Any], Stream[T, Any]]:
        """Return a handle to send records with, and their stream. See ``timely.operators.new_input``."""
        from timely import operators

        return operators.new_input(self)

    def input_from(self, handle: InputHandle[T, D]) -> Stream[T, D]:
        """Return one more stream of what ``handle`` sends from now on. See ``timely.operators.input_from``."""
        from timely import operators

        return operators.input_from(self, handle)

    def new_unordered_input(self) -> tuple[tuple[UnorderedHandle[T, Any], Capability[T]], Stream[T, Any]]:
        """Return a handle and a capability to send with, and the stream. See ``timely.operators.new_unordered_input``."""
        from timely import operators

        return operators.new_unordered_input(self)

    @overload
    def iterator_source(
        self,
        name: str,
        batches: Iterable[tuple[T, list[D]]],
        probe: ProbeHandle[T],
        *,
        records: int | None = None,
        times: int | None = None,
    ) -> Stream[T, D]: ...
    @overload
    def iterator_source(
        self,
        name: str,
        batches: Iterable[tuple[T, Any]],
        probe: ProbeHandle[T],
        *,
        records: int | None = None,
        times: int | None = None,
    ) -> Stream[T, Any]: ...
    def iterator_source(
        self,
        name: str,
        batches: Iterable[tuple[T, Any]],
        probe: ProbeHandle[T],
        *,
        records: int | None = None,
        times: int | None = None,
    ) -> Stream[T, Any]:
        """Return the stream of ``(time, container)``, no faster than bounds allow. See ``timely.operators.iterator_source``."""
        from timely import operators

        return operators.iterator_source(self, name, batches, probe, records=records, times=times)

    def to_stream(self, iterable: Iterable[D], *, on: int | Literal["each"] | None = None) -> Stream[T, D]:
        """Return the stream of the records of ``iterable``, all at the minimum time. See ``timely.operators.to_stream``."""
        from timely import operators

        return operators.to_stream(self, iterable, on=on)

    def source(self, name: str, constructor: SourceConstructor[T]) -> Stream[T, Any]:
        """Return the stream of a source of one's own. See ``timely.operators.source``."""
        from timely import operators

        return operators.source(self, name, constructor)

    @overload
    def from_async(self, name: str, batches: Callable[[], AsyncIterable[tuple[T, list[D]]]]) -> Stream[T, D]: ...
    @overload
    def from_async(self, name: str, batches: Callable[[], AsyncIterable[tuple[T, Any]]]) -> Stream[T, Any]: ...
    def from_async(self, name: str, batches: Callable[[], AsyncIterable[tuple[T, Any]]]) -> Stream[T, Any]:
        """Return the stream of the ``(time, container)`` of an async iterable. See ``timely.operators.from_async``."""
        from timely import operators

        return operators.from_async(self, name, batches)

    def empty(self) -> Stream[T, Any]:
        """Return a stream on which nothing ever comes. See ``timely.operators.empty``."""
        from timely import operators

        return operators.empty(self)

    def replay(self, *sources: Any) -> Stream[T, Any]:
        """Return the stream of what was recorded with ``capture_into``. See ``timely.operators.replay``."""
        from timely import operators

        return operators.replay(self, *sources)

    def feedback(self, summary: PathSummary[T] | None = None) -> tuple[LoopHandle[T], Stream[T, Any]]:
        """Open a loop: its handle, to be connected, and the stream that comes round. See ``timely.operators.feedback``."""
        from timely import operators

        return operators.feedback(self, summary)

    def concatenate(self, streams: Iterable[Stream[T, D]]) -> Stream[T, D]:
        """Return the stream of the records of all of ``streams``. See ``timely.operators.concatenate``."""
        from timely import operators

        return operators.concatenate(streams, self)


def check_scope(scope: object, name: str) -> None:
    """Raise ``GraphError`` unless an operator called ``name`` can be built in ``scope``.

    >>> check_scope(None, "feedback")
    Traceback (most recent call last):
    ...
    timely.errors.GraphError: operator 'feedback' is built in a scope, such as a stream's stream.scope, and not in None
    """
    if not isinstance(scope, ScopeBuilder):
        raise GraphError(f"operator {name!r} is built in a scope, such as a stream's stream.scope, and not in {brief(scope)}")
