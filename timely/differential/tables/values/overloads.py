"""Functions of SQL as data: for which kinds of arguments there is which function of Python values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import attrs

from timely.differential.tables.values.kinds import Kind


@attrs.frozen
class Overload:
    """One way to call a function: the kinds of its arguments, that of its result, and the function of values.

    The function sees no ``None``, unless it ``sees_null``. Its result may be ``None`` where it is ``optional``.
    """

    kinds: tuple[Kind, ...]
    result: Kind
    f: Callable[..., Any]
    optional: bool = False
    sees_null: bool = False


Rule = Overload | Callable[[Sequence[Kind]], Overload | None]
"""An overload, or what makes one for the kinds that a call has."""


Checks = Mapping[int, Callable[[str], object]]
"""What raises ``SqlError`` for a text that an argument cannot be, by the place of the argument, when it is written there."""

NO_CHECKS: Final[Checks] = MappingProxyType({})


@attrs.frozen
class SqlFunction:
    """A function of SQL: where its arguments stand in a node of sqlglot, and its overloads, of which the first that fits counts.

    ``ignored`` are parts of the node that say nothing more than its name does.
    """

    arguments: tuple[str, ...]
    rules: tuple[Rule, ...]
    ignored: tuple[str, ...] = ()
    checks: Checks = NO_CHECKS


def overload(f: Callable[..., Any], result: Kind, *kinds: Kind, optional: bool = False) -> Overload:
    """Return an overload.

    >>> overload(len, Kind.INTEGER, Kind.TEXT).kinds
    (VARCHAR,)
    """
    return Overload(kinds, result, f, optional)
