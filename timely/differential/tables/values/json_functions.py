"""Functions of JSON, as DuckDB defines them. Texts are read as JSON; what they lead to is written without spaces."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from timely.differential.tables.values import json_texts
from timely.differential.tables.values.json_texts import ABSENT, Step, at, written
from timely.differential.tables.values.kinds import Kind, json_of, list_of
from timely.differential.tables.values.overloads import Arguments, Overload, Rule, SqlFunction, named, overload, seeing_nulls
from timely.differential.tables.values.parsing import joined, remembered
from timely.errors import SqlError

_J, _T, _I = Kind.JSON, Kind.TEXT, Kind.INTEGER


def _type(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return "UBIGINT" if type(value) is int and value >= 0 else "BIGINT"
    if isinstance(value, str):
        return "VARCHAR" if type(value) is str else "DOUBLE"
    return _TYPES[type(value)]


_TYPES: Final = {type(None): "NULL", bool: "BOOLEAN", json_texts.Real: "DOUBLE", list: "ARRAY", tuple: "OBJECT"}


def _plain(value: Any) -> str | None:
    return None if value is None else json_texts.text_of(value)


def _length(value: Any) -> int:
    return len(value) if isinstance(value, list) else 0


def _names(value: Any) -> tuple[str, ...]:
    return tuple(name for name, _ in value) if isinstance(value, tuple) else ()


def _scalar(value: Any) -> str | None:
    return None if value is None or isinstance(value, list | tuple) else written(value)


EACH: Final = {"key": _T, "value": _J, "type": _T, "atom": _J, "id": _I, "parent": _I, "fullkey": _T, "path": _T}
"""The columns of ``json_each``: of each there is a function of its values, ``json_each key`` and so on."""


@remembered
def _entries(text: str) -> list[tuple[Any, ...]]:
    """Return the rows of ``json_each``. Their numbers count all values, and the names of objects."""
    whole, number = json_texts.read(text), 0
    parts: list[tuple[str | None, str, Any]] = []
    if isinstance(whole, list):
        number, parts = 1, [(str(place), f"[{place}]", part) for place, part in enumerate(whole)]
    elif isinstance(whole, tuple):
        number, parts = 2, [(name, f".{_step(name)}", part) for name, part in whole]
    else:
        parts = [(None, "", whole)]
    entries = []
    for key, step, part in parts:
        entries.append((key, written(part), _type(part), _scalar(part), number, None, f"${step}", "$"))
        number += _size(part) + isinstance(whole, tuple)
    return entries


def _step(name: str) -> str:
    if re.fullmatch("[A-Za-z][A-Za-z0-9_]*", name):
        return name
    escaped = re.sub(r'(["\\])', r"\\\1", name)
    return f'"{escaped}"'


def _size(value: Any) -> int:
    if isinstance(value, tuple):
        return 1 + sum(1 + _size(part) for _, part in value)
    return 1 + sum(map(_size, value)) if isinstance(value, list) else 1


def _column_of_each(place: int, kind: Kind) -> SqlFunction:
    return SqlFunction((overload(lambda text: tuple([entry[place] for entry in _entries(text)]), list_of(kind), _J),))


def _at_path(f: Callable[[Any], Any], result: Kind, *, alone: bool, numbers: bool = False) -> SqlFunction:
    """Return a function of what a path leads to, or, ``alone``, also of a whole text; ``numbers`` are paths too."""

    def of_path(text: str, steps: tuple[Step, ...]) -> Any:
        value = at(json_texts.read(text), steps)
        return None if value is ABSENT else f(value)

    rules = [overload(of_path, result, _J, kind, optional=True) for kind in ((_T, _I) if numbers else (_T,))]
    if alone:
        rules.append(overload(lambda text: f(json_texts.read(text)), result, _J))
    return SqlFunction(tuple(rules), {1: json_texts.path})


def _exists(text: str, steps: tuple[Step, ...]) -> bool:
    return at(json_texts.read(text), steps) is not ABSENT


def _whole(kinds: Arguments) -> Overload | None:
    make = json_of(kinds[0]) if len(kinds) == 1 else None
    return None if make is None else overload(make, _J, kinds[0])


def _array(kinds: Arguments) -> Overload | None:
    makes = [make for kind in kinds if (make := json_of(kind)) is not None]

    def array(*values: Any) -> str:
        return f"[{joined(',', (make(value) for make, value in zip(makes, values)))}]"

    return seeing_nulls(array, _J, kinds, optional=False) if len(makes) == len(kinds) else None


def _object(kinds: Arguments) -> Overload | None:
    makes = [make for kind in kinds[1::2] if (make := json_of(kind)) is not None]
    if len(kinds) % 2 or 2 * len(makes) < len(kinds) or any(kind is not _T for kind in kinds[::2]):
        return None

    def object_of(*values: Any) -> str:
        if None in values[::2]:
            raise SqlError("a name in json_object is NULL")
        parts = zip(values[::2], makes, values[1::2])
        return "{" + joined(",", (f"{written(name)}:{make(value)}" for name, make, value in parts)) + "}"

    return seeing_nulls(object_of, _J, kinds, optional=False)


_RULES_OF_VALID: Final[tuple[Rule, ...]] = tuple(overload(json_texts.is_valid, Kind.BOOLEAN, kind) for kind in (_T, _J))

JSON_FUNCTIONS: Final[dict[str, SqlFunction]] = {
    **{f"json_each {name}": _column_of_each(place, kind) for place, (name, kind) in enumerate(EACH.items())},
    **dict.fromkeys(("->", "json_extract", "json_extract_path"), _at_path(written, _J, alone=False, numbers=True)),
    **dict.fromkeys(("->>", "json_extract_string", "json_extract_path_text"), _at_path(_plain, _T, alone=False, numbers=True)),
    "json_value": _at_path(_scalar, _T, alone=False, numbers=True),
    "json_array_length": _at_path(_length, _I, alone=True),
    "json_type": _at_path(_type, _T, alone=True),
    "json_keys": _at_path(_names, list_of(_T), alone=True),
    **named("json_exists", overload(_exists, Kind.BOOLEAN, _J, _T), prepared={1: json_texts.path}),
    **named("json_valid", *_RULES_OF_VALID),
    **named("json", overload(lambda text: written(json_texts.read(text)), _J, _J)),
    **named("to_json, json_quote", _whole),
    **named("json_array", Overload((), _J, lambda: "[]"), _array),
    **named("json_object", Overload((), _J, lambda: "{}"), _object),
}
