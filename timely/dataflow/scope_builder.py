"""``ScopeBuilder`` and ``Stream``: what a program is written with.

A builder wraps one ``Subgraph``. Operators and streams are added until the ``with`` block of the outermost builder ends, which
compiles the whole nesting; nothing can be added after that. Operators become methods above this layer, in ``timely.methods``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec

import attrs
from typing_extensions import TypeVar

from timely.dataflow.channel import EnterPusher, LeavePusher, Pusher
from timely.dataflow.identity import Identities
from timely.dataflow.info import Allocator
from timely.dataflow.method_bases import ScopeBase, StreamBase
from timely.dataflow.origin import Origin, fold_tracebacks
from timely.errors import GraphError, brief
from timely.order import PartialOrder, Product
from timely.progress import ProgressExchange, Source, Target
from timely.scopes import EGRESS, INGRESS, Subgraph, SubgraphBuilder

T = TypeVar("T", bound=PartialOrder, default=int)
T2 = TypeVar("T2", bound=PartialOrder)
D = TypeVar("D", default=Any)
R = TypeVar("R")
P = ParamSpec("P")
S = TypeVar("S")

Exchanged = ProgressExchange[tuple[int, int, Any]]

ADVICE: Final[dict[type, str]] = {}
"""What to give instead of an object of a type that is often taken for a stream; the layer above adds its handles."""


@attrs.define(eq=False)
class ScopeContext(AbstractContextManager[S]):
    """Opens a scope at the start of its ``with`` block and finishes it at the end; ``call`` is the method that returned it."""

    _manager: AbstractContextManager[S]
    _call: str

    def __enter__(self) -> S:
        return self._manager.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool | None:
        if isinstance(error, Exception):
            fold_tracebacks(error)
        try:
            return self._manager.__exit__(kind, error, trace)
        except Exception as raised:
            fold_tracebacks(raised)
            raise

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        raise GraphError(
            f"{self._call}() opens a scope: write `with ...{self._call}() as scope:`, and scope.{name} in that block"
        )


class ScopeBuilder(ScopeBase, Generic[T]):
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
        identities = Identities(self.path, allocator.registry) if parent is None else parent.identities
        self.identities: Identities = identities
        if parent is not None:
            identities.add(self.path, parent.path, name)
        self.allocator = allocator
        self.parent = parent
        self.root: ScopeBuilder[Any] = self if parent is None else parent.root
        self.exchange = exchange
        self.checks: list[Callable[[], None]] = [] if parent is None else parent.root.checks
        self.given: dict[str, tuple[str, Origin | None]] = {}  # digests of what to_stream sends, by path
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
        self.subgraph_builder: SubgraphBuilder[Any, T] = SubgraphBuilder(self.subgraph)
        self.scopes.append(self.subgraph)
        if parent is not None:
            parent.subgraph_builder.add_child(name, self.subgraph_builder)

    def __repr__(self) -> str:
        state = "built" if self.subgraph.is_built else "being built"
        children = len(self.subgraph.children)
        return f"ScopeBuilder({self.path!r}, time: {self.subgraph.domain.name}, operators: {children}, {state})"

    @property
    def has_run(self) -> bool:
        """Whether any operator of the dataflow has run."""
        return any(getattr(child.scope, "call", 0) for subgraph in self.scopes for child in subgraph.children)

    def scoped(self, time_type: type[T2], name: str | None = None) -> AbstractContextManager[ScopeBuilder[T2]]:
        """Open a nested scope with times of ``time_type``, which must refine those of this scope.

        >>> import timely
        >>> def build(scope):
        ...     with scope.scoped(timely.Product[int, int]) as inner:
        ...         return scope.to_stream([1, 2]).enter(inner).delay_batch(lambda time: timely.Product(5, 1)).leave()
        >>> timely.example(build)
        [(5, [1, 2])]
        """
        return ScopeContext(self._nested(name or "scoped", time_type), "scoped")

    def named(self, name: str, definition: str = "") -> AbstractContextManager[object]:
        """Have the operators of the block belong to the relation ``name``, by which a checkpoint finds their state.

        So a change of the program elsewhere leaves them as they are. ``definition`` is any text: change it where the operators
        are the same and their functions are others. A block is in the outermost scope; ``GraphError`` for a name that is taken.

        >>> import timely
        >>> def show(capability, info):
        ...     print(info.path, info.identity)
        ...     return lambda output: None
        >>> with timely.Worker().dataflow(int, name="df") as scope:
        ...     first = scope.empty()
        ...     with scope.named("totals"):
        ...         _ = scope.source("count", show)
        /df/count#1 totals/count#0
        """
        if self.parent is not None:
            raise GraphError(
                f"named({name!r}) in scope {self.path!r}: a name is of the outermost scope, and the loop is part of what it names"
            )
        return self.identities.named(name, "", definition, ())

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
        product: Any = Product  # no type checker knows the coordinates
        return ScopeContext(self._nested(name or "iterative", product[self.time, int]), "iterative")

    @contextmanager
    def _nested(self, name: str, time: Any) -> Iterator[ScopeBuilder[Any]]:
        yield ScopeBuilder(name, time, self.allocator, self, None, self.exchange)

    def finish(self) -> None:
        """Compile the whole nesting, as the end of a dataflow's ``with`` block does.

        ``GraphError`` if an operator or loop was begun and never finished.

        >>> import timely
        >>> with timely.Worker().dataflow() as scope:
        ...     _ = timely.OperatorBuilder(scope, "half")
        Traceback (most recent call last):
        timely.errors.GraphError: operators were begun and never built: /dataflow0/half#0; call build(...)
        """
        for check in self.checks:
            check()
        if self.unfinished:
            raise GraphError(f"operators were begun and never built: {', '.join(sorted(self.unfinished))}; call build(...)")
        self.subgraph_builder.get_internal_summary()
        self.subgraph_builder.set_external_summary((), ())


class Stream(StreamBase, Generic[T, D]):
    """A stream of records of type ``D`` at times of type ``T``, in one scope.

    Its methods are the functions of :mod:`timely.operators`.
    """

    __slots__ = ("scope", "source", "tee")

    def __init__(self, scope: ScopeBuilder[T], source: Source, tee: list[Pusher[T]]) -> None:
        self.scope = scope
        self.source = source
        self.tee = tee

    def __repr__(self) -> str:
        return f"Stream({self.scope.path!r}, {self.source!r})"

    def apply(self, f: Callable[Concatenate[Stream[T, D], P], R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Return ``f(self, ...)``: anyone's function of a stream, as good as a method.

        >>> import timely
        >>> def squares(stream, power):
        ...     return stream.map(lambda x: x ** power)
        >>> timely.example(lambda scope: scope.to_stream([1, 2, 3]).apply(squares, 2))
        [(0, [1, 4, 9])]
        """
        return f(self, *args, **kwargs)

    def enter(self, scope: ScopeBuilder[T2]) -> Stream[T2, D]:
        """Return this stream inside ``scope``, a scope nested directly in the stream's own; ``GraphError`` otherwise.

        >>> import timely
        >>> def build(scope):
        ...     with scope.region() as inner:
        ...         return scope.to_stream([1, 2]).enter(inner).leave()
        >>> timely.example(build)
        [(0, [1, 2])]
        """
        if getattr(scope, "parent", None) is not self.scope:
            raise GraphError(
                f"a stream of scope {self.scope.path!r} cannot enter {brief(getattr(scope, 'path', scope))}, which is not nested"
                f" directly in it: {way_between(self.scope, scope, 'enter the scopes on the way one by one')}"
            )
        port = scope.subgraph_builder.new_input()
        tee: list[Pusher[T2]] = []
        self.scope.subgraph_builder.add_edge(self.source, Target(scope.index, port), local=True)
        self.tee.append(EnterPusher(scope.subgraph, port, tee))
        return Stream(scope, Source(INGRESS, port), tee)

    def leave(self) -> Stream[Any, D]:
        """Return this stream in the scope around its own; ``GraphError`` at the outermost one.

        >>> import timely
        >>> with timely.Worker().dataflow() as scope, scope.region() as inner:
        ...     inner.empty().leave().scope is scope
        True
        """
        scope, parent = self.scope, self.scope.parent
        if parent is None:
            raise GraphError(f"a stream of the outermost scope {scope.path!r} cannot leave it")
        port = scope.subgraph_builder.new_output()
        tee: list[Pusher[Any]] = []
        scope.subgraph_builder.add_edge(self.source, Target(EGRESS, port), local=True)
        self.tee.append(LeavePusher(scope.subgraph, tee))
        return Stream(parent, Source(scope.index, port), tee)


def check_scope(scope: object, name: str) -> None:
    """Raise ``GraphError`` unless an operator called ``name`` can be built in ``scope``."""
    if not isinstance(scope, ScopeBuilder):
        raise GraphError(f"operator {name!r} is built in a scope, such as a stream's stream.scope, and not in {brief(scope)}")


def scope_of(stream: Stream[T, Any], reader: str) -> ScopeBuilder[T]:
    """Return the scope of ``stream``, in which an operator ``reader`` is to be made that reads it.

    ``GraphError`` for what is no stream, which says what to give instead: a function of a stream may be called with anything.
    """
    if not isinstance(stream, Stream):
        raise GraphError(f"operator {reader!r} reads a timely.Stream, not {brief(stream)}: {instead_of(stream)}")
    return stream.scope


def way_between(start: ScopeBuilder[Any], end: object, inside: str = "bring it in with enter(scope), or out with leave()") -> str:
    """Return how a stream of one scope comes to another, for a message: ``inside`` says how within a dataflow."""
    if getattr(end, "root", start.root) is start.root:
        return inside
    return "that is another dataflow: record it there with capture_into, and replay it here"


def instead_of(value: object) -> str:
    """Return what to give instead of ``value``, which is no stream, for a message."""
    first = value
    while isinstance(first, tuple) and first:  # new_unordered_input returns ((handle, capability), stream)
        first = first[0]
    if type(first) in ADVICE:
        return ADVICE[type(first)]
    if isinstance(value, list | tuple) and any(isinstance(one, Stream) for one in value):
        return "give the streams in it one by one, as in concat(*streams)"
    if isinstance(value, ScopeBuilder):
        return "give a stream of that scope"
    if value is None:
        return "a function that builds part of a dataflow must return its stream"
    return "make one of it with scope.to_stream(...)"
