"""Loops: ``Variable`` is what goes round, ``iterate`` repeats a function until nothing changes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Generic, TypeAlias

from typing_extensions import TypeVar

from timely.dataflow import Pipeline, ScopeBuilder
from timely.differential.collections import Collection
from timely.differential.operators.loop_state import last_changes
from timely.differential.updates.rings import Ring, product_ring, ring_of
from timely.errors import GraphError, brief
from timely.operators.loop_edges import connect_loop, open_loop
from timely.order import PartialOrder
from timely.progress import PathSummary

T = TypeVar("T", bound=PartialOrder, default=Any)
D = TypeVar("D", default=Any)

Body: TypeAlias = Callable[[ScopeBuilder[Any], Collection[Any, D]], Collection[Any, D]]
"""Builds one round of a loop: ``f(scope, collection)`` returns the collection after it."""


class Variable(Generic[T, D]):
    """A collection defined in terms of itself, in the loop ``scope``: ``set(result)`` makes it ``result`` one round later.

    It starts as ``initial``, or empty. ``step`` is the path summary of a round, one more by default. Mutual recursion takes two
    variables. What goes round must be brought together somewhere, by ``distinct``, a reduction or ``consolidate``: differences
    that cancel may go round for ever otherwise.

    >>> import timely
    >>> from timely import differential as dd
    >>> with timely.Worker() as worker:
    ...     with worker.dataflow(int) as scope:
    ...         numbers = dd.collection(scope, range(10, 20))
    ...         with scope.iterative() as loop:
    ...             inner = numbers.enter(loop)
    ...             evens = dd.Variable(loop, inner.filter(lambda x: x % 2 == 0))
    ...             odds = dd.Variable(loop, inner.filter(lambda x: x % 2 == 1))
    ...             more = odds.collection.filter(bool).map(lambda x: x - 1).concat(inner.filter(lambda x: x % 2 == 0))
    ...             _ = evens.set(more.distinct())
    ...             more = evens.collection.filter(bool).map(lambda x: x - 1).concat(inner.filter(lambda x: x % 2 == 1))
    ...             _ = odds.set(more.distinct())
    ...             found = evens.collection.leave().consolidate().output()
    ...     sorted(found.at(0))
    [0, 2, 4, 6, 8, 10, 12, 14, 16, 18]
    """

    def __init__(
        self,
        scope: ScopeBuilder[T],
        initial: Collection[T, D] | None = None,
        *,
        step: PathSummary[T] | None = None,
        diff: type | Ring = int,
    ) -> None:
        if initial is not None and initial.scope is not scope:
            raise GraphError(
                f"a Variable of scope {scope.path!r} starts with a collection of that scope, not of {initial.scope.path!r}:"
                " bring it in with enter(scope)"
            )
        self._initial = initial
        self._ring = ring_of(diff) if initial is None else initial.ring
        if initial is not None:
            self._ring.require("negate", "a Variable with an initial collection")
        self._handle, stream = open_loop(scope, step, last_changes)
        again: Collection[T, D] = Collection(stream, self._ring)
        self.collection: Collection[T, D] = again if initial is None else initial.concat(again)

    def set(self, result: Collection[T, D]) -> Collection[T, D]:
        """Define the variable, once, and return ``result``."""
        if not isinstance(result, Collection):
            raise GraphError(f"Variable.set takes the collection that the variable becomes, not {brief(result)}")
        product_ring(self._ring, result.ring, "Variable.set")
        change = result if self._initial is None else result.minus(self._initial)
        connect_loop(change.stream, self._handle, Pipeline)
        return result


def iterate(scope: ScopeBuilder[T], f: Body[D]) -> Collection[T, D]:
    """Return the limit of ``x = f(x)`` from an empty collection: ``f(scope, x)`` builds one round, inside a loop.

    >>> import timely
    >>> from timely import differential as dd
    >>> with timely.Worker() as worker:
    ...     with worker.dataflow(int) as scope:
    ...         one = dd.collection(scope, [1])
    ...         def double(loop, x):
    ...             return x.map(lambda n: 2 * n).filter(lambda n: n < 40).concat(one.enter(loop)).distinct()
    ...         powers = dd.iterate(scope, double).output()
    ...     sorted(powers.at(0))
    [1, 2, 4, 8, 16, 32]
    """
    with scope.iterative("iterate") as loop:
        variable: Variable[Any, D] = Variable(loop)
        return variable.set(one_round(f, loop, variable.collection)).leave()


def one_round(f: Body[D], loop: ScopeBuilder[T], collection: Collection[T, D]) -> Collection[T, D]:
    """Return ``f(loop, collection)``, consolidated unless its operator does that: or a loop may not come to rest.

    ``GraphError`` for a function that does not take both, or returns no collection.
    """
    try:
        inspect.signature(f).bind(loop, collection)
    except TypeError as error:
        name = getattr(f, "__name__", repr(f))
        raise GraphError(f"iterate calls f(scope, collection), and {name} is a function of other arguments: {error}") from None
    except ValueError:  # a function that is not written in Python
        pass
    result = f(loop, collection)
    if not isinstance(result, Collection):
        raise GraphError(f"the function of iterate returns the collection after one round, not {brief(result)}")
    return result if result.consolidated else result.consolidate()


def iterate_from(collection: Collection[T, D], f: Body[D]) -> Collection[T, D]:
    """Return the limit of ``x = f(x)`` from ``collection``."""
    collection.ring.require("negate", "iterate")
    with collection.scope.iterative("iterate") as loop:
        variable: Variable[Any, D] = Variable(loop, collection.enter(loop))
        return variable.set(one_round(f, loop, variable.collection)).leave()
