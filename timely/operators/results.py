"""``Ok`` and ``Err``: records that hold a value or an error, and operators on streams of them.

An operator that must not fail for one bad record returns an ``Err``, and the errors are handled elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeAlias

import attrs

from timely.dataflow import Stream, operator_name
from timely.errors import RoutingError, brief
from timely.operators.elementwise import flat_map, map
from timely.operators.routing import partition
from timely.operators.type_variables import A, B, D, E, F, T


@attrs.frozen(order=True, repr=False)
class Ok(Generic[A]):
    """A result that is a value."""

    value: A

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value!r})"


@attrs.frozen(order=True, repr=False)
class Err(Generic[E]):
    """A result that is an error."""

    error: E

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.error!r})"


Result: TypeAlias = Ok[A] | Err[E]


def either(result: Result[A, E], on_ok: Callable[[A], B], on_err: Callable[[E], B]) -> B:
    """Return ``on_ok(value)`` of an ``Ok``, ``on_err(error)`` of an ``Err``. ``RoutingError`` for anything else.

    >>> either(Ok(3), str, len), either(Err("three"), str, len)
    ('3', 5)
    """
    if isinstance(result, Ok):
        return on_ok(result.value)
    if isinstance(result, Err):
        return on_err(result.error)
    raise RoutingError(f"expected an Ok or an Err, and got {brief(result)}: wrap it in timely.operators.results.Ok(...)")


def ok_err(stream: Stream[T, D], f: Callable[[D], Result[A, E]], *, name: str | None = None) -> tuple[Stream[T, A], Stream[T, E]]:
    """Return two streams: the values of each ``f(record)`` that is an ``Ok``, and the errors of each that is an ``Err``.

    ``RoutingError`` for anything else.

    >>> import timely
    >>> from timely.operators.results import Err, Ok
    >>> def parse(text):
    ...     return Ok(int(text)) if text.isdigit() else Err(text)
    >>> timely.example(lambda scope: scope.to_stream(["1", "x", "2"]).ok_err(parse)[0])
    [(0, [1, 2])]
    """

    def choose(record: D) -> tuple[int, Any]:
        return either(f(record), lambda value: (0, value), lambda error: (1, error))

    oks, errors = partition(stream, 2, choose, name=operator_name("ok_err", name, f))
    return oks, errors


def ok(stream: Stream[T, Result[A, E]], *, name: str | None = None) -> Stream[T, A]:
    """Return the stream of the values; without the errors.

    >>> import timely
    >>> timely.example(lambda scope: scope.to_stream([Ok(0), Err("x")]).apply(ok))
    [(0, [0])]
    """
    return flat_map(
        stream, lambda record: either(record, lambda value: [value], lambda error: []), name=operator_name("ok", name)
    )


def err(stream: Stream[T, Result[A, E]], *, name: str | None = None) -> Stream[T, E]:
    """Return the stream of the errors; without the values.

    >>> import timely
    >>> timely.example(lambda scope: scope.to_stream([Ok(0), Err("x")]).apply(err))
    [(0, ['x'])]
    """
    return flat_map(
        stream, lambda record: either(record, lambda value: [], lambda error: [error]), name=operator_name("err", name)
    )


def map_ok(stream: Stream[T, Result[A, E]], f: Callable[[A], B], *, name: str | None = None) -> Stream[T, Result[B, E]]:
    """Return the stream with ``f(value)`` for each value; errors pass unchanged.

    >>> import timely
    >>> timely.example(lambda scope: scope.to_stream([Ok(0), Ok(1)]).apply(map_ok, lambda x: x + 10))
    [(0, [Ok(10), Ok(11)])]
    """
    return and_then(stream, lambda value: Ok(f(value)), name=operator_name("map_ok", name, f))


def map_err(stream: Stream[T, Result[A, E]], f: Callable[[E], F], *, name: str | None = None) -> Stream[T, Result[A, F]]:
    """Return the stream with ``f(error)`` for each error; values pass unchanged.

    >>> import timely
    >>> timely.example(lambda scope: scope.to_stream([Err("a"), Err("b")]).apply(map_err, str.upper))
    [(0, [Err('A'), Err('B')])]
    """

    def change(error: E) -> Result[A, F]:
        return Err(f(error))

    return map(stream, lambda record: either(record, Ok, change), name=operator_name("map_err", name, f))


def and_then(
    stream: Stream[T, Result[A, E]], f: Callable[[A], Result[B, E]], *, name: str | None = None
) -> Stream[T, Result[B, E]]:
    """Return the stream with ``f(value)``, an ``Ok`` or an ``Err``, for each value; errors pass unchanged.

    >>> import timely
    >>> def halve(x):
    ...     return Err(f"{x} is odd") if x % 2 else Ok(x // 2)
    >>> timely.example(lambda scope: scope.to_stream([Ok(4), Ok(6)]).apply(and_then, halve))
    [(0, [Ok(2), Ok(3)])]
    """
    return map(stream, lambda record: either(record, f, Err), name=operator_name("and_then", name, f))


def unwrap_or_else(stream: Stream[T, Result[A, E]], f: Callable[[E], A], *, name: str | None = None) -> Stream[T, A]:
    """Return the stream of the values, with ``f(error)`` in place of each error.

    >>> import timely
    >>> timely.example(lambda scope: scope.to_stream([Ok(0), Err("four")]).apply(unwrap_or_else, len))
    [(0, [0, 4])]
    """
    return map(stream, lambda record: either(record, lambda value: value, f), name=operator_name("unwrap_or_else", name, f))
