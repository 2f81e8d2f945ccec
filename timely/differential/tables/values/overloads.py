"""Functions of SQL as data: a row for each, by its names as written.

A row says for which kinds of arguments there is which function of values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal

import attrs

from timely.differential.tables.values.kinds import MOMENTS, Kind, common
from timely.errors import SqlError


def always(nullables: Iterable[bool]) -> bool:
    """Return that a result may be ``None`` whatever the arguments are."""
    return True


@attrs.frozen
class Overload:
    """One way to call a function: the kinds of its arguments, that of its result, and the function of values.

    An argument without a kind is read when the call is compiled, and not passed. ``nullable`` says whether the result may be
    ``None`` where those arguments may. A strict function sees no ``None``. A lazy one takes the functions of a row that its
    arguments are, and returns one. Functions of a program may have one of Arrow arrays beside it, ``columns``.
    """

    kinds: tuple[Kind | None, ...]
    result: Kind
    f: Callable[..., Any]
    nullable: Callable[[Iterable[bool]], bool] = any
    sees: Literal["values", "nulls", "functions"] = "values"
    columns: Callable[..., Any] | None = None


class Arguments(tuple[Kind, ...]):
    """The kinds of the arguments of a call; ``written`` has the literal of each: a text, a whole number, or an interval."""

    written: Sequence[Any]

    def __new__(cls, kinds: Iterable[Kind], written: Sequence[Any]) -> Arguments:
        arguments = super().__new__(cls, kinds)
        arguments.written = written
        return arguments

    def together(self) -> Kind:
        """Return the kind that all arguments become where they meet: literal texts become what the others are."""
        kind = Kind.NULL
        for own, literal in zip(self, self.written):
            if own is Kind.MONTHS:
                raise SqlError(NO_LENGTH)
            both = kind if isinstance(literal, str) else common(own, kind)
            if both is None:
                dated = " (a date is a text: '2025-12-31')" if {kind, own} & {*MOMENTS} else ""
                raise SqlError(f"{kind.value} and {own.value} do not go together: cast one{dated}")
            kind = both
        return Kind.TEXT if kind is Kind.NULL and any(isinstance(literal, str) for literal in self.written) else kind


class WrongArgumentError(SqlError):
    """An argument of a call, at ``place``, is none that the function takes."""

    def __init__(self, why: str, place: int) -> None:
        super().__init__(why)
        self.place = place


NO_LENGTH: Final = "months have no fixed length: such an interval is only added to a date or timestamp"

Rule = Overload | Callable[[Arguments], Overload | None]
"""An overload, or what makes one for the arguments that a call has; ``SqlError`` for those that no function takes."""


@attrs.frozen
class SqlFunction:
    """A function of SQL. Of its overloads the first counts that has the kinds of the arguments, or else that they can become.

    ``prepared`` says what becomes of a text before the function has it, by the place of the argument: a pattern, a unit, a
    zone. Where the text is a literal that is done once, and ``SqlError`` names the literal.
    """

    rules: tuple[Rule, ...]
    prepared: Mapping[int, Callable[..., Any]] = MappingProxyType({})


def named(names: str, *rules: Rule, prepared: Mapping[int, Callable[..., Any]] = MappingProxyType({})) -> dict[str, SqlFunction]:
    return dict.fromkeys(names.split(", "), SqlFunction(rules, prepared))


def overload(f: Callable[..., Any], result: Kind, *kinds: Kind, optional: bool = False) -> Overload:
    """Return an overload."""
    return Overload(kinds, result, f, always if optional else any)


def seeing_nulls(f: Callable[..., Any], result: Kind, kinds: Iterable[Kind], optional: bool = True) -> Overload:
    """Return the overload of a function that has to see ``None`` too; its result is one only where it is ``optional``."""
    return Overload(tuple(kinds), result, f, always if optional else lambda nullables: False, "nulls")


def taking(count: int, rule: Callable[[Arguments], Overload | None]) -> Rule:
    return lambda kinds: rule(kinds) if len(kinds) == count else None
