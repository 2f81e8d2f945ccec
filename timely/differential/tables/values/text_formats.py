"""``format`` and ``printf``: a format is read once, and what DuckDB formats otherwise than Python does is refused."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final

import attrs

from timely.differential.tables.values.kinds import DOUBLES, Kind
from timely.differential.tables.values.overloads import Arguments, Overload, SqlFunction, overload
from timely.differential.tables.values.parsing import joined
from timely.differential.tables.values.text_functions import as_text
from timely.errors import SqlError, brief


@attrs.frozen
class _Field:
    """What a value becomes: ``spec`` is one of Python, without its type."""

    place: int
    spec: str
    type: str
    unsigned: bool = False

    def text(self, values: tuple[Any, ...]) -> str:
        if not 0 <= self.place < len(values):
            raise SqlError(f"the format has a field number {self.place + 1}, and there are {len(values)} values")
        value = values[self.place]
        if self.unsigned and type(value) is int and value < 0:
            value &= (1 << 64) - 1
        if self.type == "c" and type(value) is int and 0 < value < 128:
            return format(chr(value), self.spec)
        types = next(types for kind, types in _TYPES.items() if isinstance(value, kind))
        refused = {str: "[+ ,_]|^0", float: "(?!)"}.get(type(value), "[.]" if self.type in ("", "s", "d") else "[.,]")
        if self.type not in types or re.search(refused, self.spec):
            raise SqlError(f"the type {self.type or 'of no letter'!r} of a format is not supported for {brief(value)}")
        if isinstance(value, float) and not self.type and "." in self.spec:
            raise SqlError("a format with a precision needs a type: write .2f or .2g")
        if isinstance(value, float) and abs(value) >= 1 << 63:  # other digits, or another side, than Python has
            fills = re.search("[0-9]", self.spec.partition(".")[0])
            if self.type in ("f", "F") if math.isfinite(value) else fills:
                raise SqlError(f"{value} is too large for the format: write {{}}, %e or %g")
        if isinstance(value, bool):
            value = int(value) if self.type == "d" else "true" if value else "false"
        return format(value, self.spec + ("" if isinstance(value, str) else self.type))


_TYPES: Final = {bool: ("", "s", "d"), int: ("", *"dxXob"), float: ("", *"fFeEgG"), str: ("", "s")}
"""The types of fields for values."""

_Parts = tuple[str | _Field, ...]
_SIGN: Final = "[+ ]?"
_SPEC: Final = rf"(?:(?:[ -z|~]?[<>^]){_SIGN}(?:[1-9][0-9]{{0,3}})?|{_SIGN}(?:0?[1-9][0-9]{{0,3}}|[,_])?)(?:\.[0-9]{{1,4}})?"
_BRACES: Final = re.compile(rf"([^{{}}]+)|(\{{\{{|\}}\}})|\{{([0-9]{{0,4}})(?::({_SPEC})([bdeEfFgGosxX]?))?\}}")
_PERCENTS: Final = re.compile(
    r"([^%]+)|(%%)|%(?:([0-9]{1,4})\$)?([-+ 0,]*)([1-9][0-9]{0,3})?(\.[0-9]{1,4})?(?:hh?|ll?)?([cdeEfFgGiosuxX])"
)


def _read(pattern: re.Pattern[str], field: Callable[[re.Match[str], int], _Field]) -> Callable[[str], _Parts]:
    """Return what reads a format, whose fields without a number are those after another."""

    def read(text: str) -> _Parts:
        parts: list[str | _Field] = []
        place, count, are_numbered = 0, 0, set[bool]()
        while place < len(text):
            match = pattern.match(text, place)
            if match is None:
                raise SqlError(f"the format {brief(text)} is not supported from {brief(text[place:])} on")
            literal = match[1] or (match[2] and match[2][0])
            if literal:
                parts.append(literal)
            else:
                parts.append(field(match, count))
                count += not match[3]
                are_numbered.add(bool(match[3]))
                if len(are_numbered) > 1:
                    raise SqlError(f"the format {brief(text)} has fields with numbers and without")
            place = match.end()
        return tuple(parts)

    return read


def _braced(match: re.Match[str], count: int) -> _Field:
    return _Field(int(match[3]) if match[3] else count, match[4] or "", match[5] or "")


def _percent(match: re.Match[str], count: int) -> _Field:
    flags, width, precision = match[4], match[5] or "", match[6] or ""
    type_ = "d" if match[7] in "iu" else match[7]
    if len(set(flags)) < len(flags) or ("0" in flags and {*"-,"} & {*flags}) or (flags and type_ == "c"):
        raise SqlError(f"the flags {brief(flags)} of a format are not supported together")
    sign = "+" if "+" in flags else " " if " " in flags else ""
    zero = "0" if "0" in flags and width else ""
    align = "<" if "-" in flags else "" if zero else ">"
    spec = f"{align}{sign}{zero}{width}{',' * (',' in flags)}{precision}"
    return _Field(int(match[3]) - 1 if match[3] else count, spec, type_, type_ in "xXo")


def _formatted(kinds: Arguments) -> Overload | None:
    converts: list[Callable[[Any], Any] | None] = []
    for kind in kinds[1:]:
        number = float if kind.base is Kind.DECIMAL else (lambda value: value)
        convert = number if kind.base in (Kind.BOOLEAN, Kind.INTEGER, *DOUBLES, Kind.DECIMAL) else as_text(kind)
        converts.append(convert)

    def text(parts: _Parts, *values: Any) -> str:
        shown = tuple(convert(value) for convert, value in zip(converts, values) if convert is not None)
        return joined("", (part if isinstance(part, str) else part.text(shown) for part in parts))

    return None if None in converts or not kinds else overload(text, Kind.TEXT, Kind.TEXT, *kinds[1:])


FORMAT_FUNCTIONS: Final = {
    "format": SqlFunction((_formatted,), {0: _read(_BRACES, _braced)}),
    "printf": SqlFunction((_formatted,), {0: _read(_PERCENTS, _percent)}),
}
