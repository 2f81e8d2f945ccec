"""Texts of JSON, as DuckDB reads and writes them; ``SqlError`` for those that are none.

An object is read as a tuple of pairs, since it may have a name twice, and an array as a list. A number that fits neither 64 bits
nor a double stays as it is written. DuckDB also reads ``[1,]`` and ``NaN``, which are no JSON: they are an error here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from timely.differential.tables.values.parsing import remembered
from timely.errors import SqlError, brief

Step = str | int | tuple[str, int]
"""A step of a path: a name, the number of an element, or what may be either."""

ABSENT: Final = object()
"""What a path leads to where there is nothing: ``null`` is something."""


class _Number(str):
    """A number that is neither a whole number of 64 bits nor a double, as it is written."""


class Real(float):
    """A double, with the text that it is written as."""

    text: str


class _MinusZero(int):
    """The whole number ``-0``, which is a signed 0."""


class _NotJsonError(SqlError):
    """A text is no JSON, for DuckDB neither."""


def _whole(text: str) -> int | _Number:
    value = int(text) if len(text) <= 20 else 1 << 64
    if text == "-0":
        return _MinusZero()
    return value if -(1 << 63) <= value < 1 << 64 else _Number(text)


def _real(text: str) -> Real | _Number:
    value = Real(text)
    value.text = text
    return value if math.isfinite(value) else _Number(text)


def _no_constant(name: str) -> Any:
    raise ValueError(name)


_READER: Final = json.JSONDecoder(object_pairs_hook=tuple, parse_int=_whole, parse_float=_real, parse_constant=_no_constant)
_LENIENT: Final = re.compile(r'("(?:[^"\\]|\\.)*"?)|(?<=[^\[{,\s])\s*,(?=\s*[\]}])|\b(?:nan|inf(?:inity)?)\b', re.IGNORECASE)
_ESCAPE: Final = re.compile(r"\\(?:u(00[01][0-9a-f])|.)")


@remembered
def read(text: str) -> Any:
    """Return what a text is."""
    try:
        value = _READER.decode(text)
        if "\\u" in text or text.count("[") + text.count("{") > 200:  # it may be too deep to write
            written(value).encode()
    except RecursionError:
        raise SqlError(f"the JSON {brief(text)} is nested too deeply") from None
    except ValueError:
        lenient = _LENIENT.sub(lambda part: part[1] or ("0" if part[0][-1].isalpha() else ""), text)
        if lenient != text and is_valid(lenient):
            raise SqlError(f"{brief(text)} has a comma before a bracket, or NaN or infinity, which JSON has not") from None
        raise _NotJsonError(f"{brief(text)} is no JSON") from None
    return value


def is_valid(text: str) -> bool:
    """Return whether a text is JSON."""
    try:
        read(text)
    except _NotJsonError:
        return False
    return True


def checked(text: str) -> str:
    """Return a text that is JSON."""
    read(text)
    return text


def written(value: Any) -> str:
    """Return the text of what has been read."""
    if isinstance(value, tuple):
        return "{" + ",".join(f"{_quoted(name)}:{written(part)}" for name, part in value) + "}"
    if isinstance(value, list):
        return f"[{','.join(map(written, value))}]"
    if isinstance(value, str):
        return str(value) if isinstance(value, _Number) else _quoted(value)
    return text_of_double(value) if isinstance(value, float) else json.dumps(value)


def _quoted(text: str) -> str:
    quoted = json.dumps(text, ensure_ascii=False)
    return (
        _ESCAPE.sub(lambda escape: f"\\u{escape[1].upper()}" if escape[1] else escape[0], quoted) if "\\u" in quoted else quoted
    )


def text_of(value: Any, *, exact: bool = False) -> str:
    """Return what a value is as a text, without quotes; ``exact`` with all digits of a number."""
    if exact and isinstance(value, Real):
        return value.text
    return str(value) if isinstance(value, str) else written(value)


def text_of_double(value: float) -> str:
    """Return a double as JSON has it: the shortest text, without an exponent from 1e-6 up to 1e21."""
    if not math.isfinite(value):
        raise SqlError(f"{value} is no number of JSON")
    shortest = Decimal(repr(value))
    if not value or -7 < shortest.adjusted() < 21:
        text = f"{shortest:f}"
        return text if "." in text else f"{text}.0"
    digits = "".join(map(str, shortest.normalize().as_tuple().digits))
    return f"{'-' * (value < 0)}{digits[0]}{'.' * (len(digits) > 1)}{digits[1:]}e{shortest.adjusted()}"


# -- paths ---------------------------------------------------------------------------------------------------------

_STEP: Final = re.compile(r'\.(?:"([^"\\*]+)"|([^".\[*\\]+))|\[((?:#?-)?[0-9]{1,9}|#)\]')


@remembered
def path(text: str | int) -> tuple[Step, ...]:
    """Return the steps of a path: ``$.a[0]``, ``/a/0``, a name, or a number."""
    if isinstance(text, int):
        return (text,)
    if '"' in text and text[0] not in "$/":
        text = f"/{text}"  # as DuckDB does
    if text.startswith("/"):
        names = [name.replace("~1", "/").replace("~0", "~") for name in text[1:].split("/")]
        return tuple((name, int(name)) if re.fullmatch("0|[1-9][0-9]{0,8}", name) else name for name in names)
    if not text.startswith("$"):
        return (text,) if text else ()
    steps: list[Step] = []
    place = 1
    while place < len(text):
        match = _STEP.match(text, place)
        if match is None:
            raise SqlError(
                f"the path {brief(text)} is not supported from {brief(text[place:])} on: it has names and numbers, as $.a[0]"
            )
        name, number = match[1] or match[2], match[3]
        steps.append(name if number is None else _element(number))
        place = match.end()
    return tuple(steps)


def _element(number: str) -> int:
    return int(number.removeprefix("#")) if number != "#" else 1 << 40


def at(value: Any, steps: Sequence[Step]) -> Any:
    """Return what a path leads to, or ``ABSENT``."""
    for step in steps:
        name, number = step if isinstance(step, tuple) else (step, step)
        if isinstance(value, list) and isinstance(number, int) and -len(value) <= number < len(value):
            value = value[number]
        elif isinstance(value, tuple) and isinstance(name, str):
            value = next((part for own, part in value if own == name), ABSENT)
        else:
            return ABSENT
    return value
