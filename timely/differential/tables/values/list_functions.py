"""Functions of lists, whose values are tuples, as DuckDB defines them. The first element is number 1."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from decimal import Decimal
from fractions import Fraction
from itertools import zip_longest
from operator import ge, gt, le, lt
from typing import Any, Final

import attrs

from timely.differential.tables.values.kinds import (
    MOMENTS,
    NUMBERS,
    Kind,
    canonical_float,
    checked_map,
    common,
    fitting,
    list_of,
    lower_case,
    map_of,
    sortable,
    struct_of,
)
from timely.differential.tables.values.moment_functions import add_interval
from timely.differential.tables.values.overloads import (
    NO_LENGTH,
    Arguments,
    Overload,
    Rule,
    SqlFunction,
    always,
    named,
    overload,
    seeing_nulls,
    taking,
)
from timely.differential.tables.values.parsing import check_length, joined
from timely.differential.tables.values.text_functions import as_text, repeat
from timely.errors import SqlError
from timely.operators.keyed.numbers import ExactSum

Values = tuple[Any, ...]

_I, _B, _T = Kind.INTEGER, Kind.BOOLEAN, Kind.TEXT


def element(values: Values, number: int) -> Any:
    """Return an element by its number, from 1, or from -1 back; ``None`` where there is none."""
    index = number - 1 if number > 0 else len(values) + number
    return values[index] if number and 0 <= index < len(values) else None


def part(values: Values, first: int, last: int) -> Values:
    """Return the elements from one number to another, both with it."""
    count = len(values)
    begin = first - 1 if first > 0 else count + first if first < 0 else 0
    end = last if last >= 0 else count + last + 1
    return values[max(begin, 0) : max(end, 0)]


def text_part(text: str, first: int, last: int) -> str:
    """Return the letters of a text from one number to another."""
    return "".join(part(tuple(text), first, last))


def _position(values: Values | None, value: Any) -> int | None:
    return None if values is None or value not in values else values.index(value) + 1


def _join(convert: Callable[[Any], str]) -> Callable[[Values | None, str | None], str | None]:
    def join(values: Values | None, separator: str | None) -> str | None:
        if values is None:
            return None
        separator = "," if separator is None else separator
        present = [convert(value) for value in values if value is not None]
        return joined(separator, present) if present or not values else None

    return join


def _contains(values: Values | None, value: Any) -> bool | None:
    if values is None or value is None:
        return False if values == () else None
    return value in values


def _sum(values: Values) -> Any:
    present = [(value, 1) for value in values if value is not None]
    return ExactSum.of(present).result() if present else None


def _average(values: Values) -> float | None:
    present = [(value, 1) for value in values if value is not None]
    if not present:
        return None
    total = ExactSum.of(present).result()
    return float(Fraction(total) / len(present)) if isinstance(total, Decimal) else canonical_float(float(total) / len(present))


def _extreme(choose: Callable[..., Any]) -> Callable[[Values], Any]:
    def extreme(values: Values) -> Any:
        return choose((value for value in values if value is not None), key=sortable, default=None)

    return extreme


def ordered(values: Values, descending: bool = False, nulls_first: bool = False) -> Values:
    """Return a list in order, with ``None`` at one end."""
    present = sorted((value for value in values if value is not None), key=sortable, reverse=descending)
    missing = (None,) * (len(values) - len(present))
    return (*missing, *present) if nulls_first else (*present, *missing)


def _series(closed: bool) -> Callable[..., Values]:
    """Return what counts from a number to another: up to it, or with it where the series is ``closed``."""

    def series(*numbers: int) -> Values:
        start, stop, step = (0, *numbers, 1) if len(numbers) == 1 else (*numbers, 1)[:3]
        counted = range(start, stop + (1 if step > 0 else -1) * closed, step) if step else range(0)
        check_length(max(0, (counted.stop - counted.start) // counted.step), "list")
        return tuple(counted)

    return series


def _repeated(values: Values, count: int) -> Values:
    check_length(len(values) * count, "list")
    return values * count


def _moments(closed: bool, months: int, delta: datetime.timedelta) -> Callable[..., Values]:
    """Return what lists the moments from one to another, always an interval later; or earlier, where that is negative."""
    forward = months > 0 or delta > datetime.timedelta()
    if months and delta and (months > 0) != (delta > datetime.timedelta()):
        raise SqlError("the months of the interval go into another direction than the rest of it")
    ends_before: Callable[[Any, Any], bool] = (gt if forward else lt) if closed else (ge if forward else le)

    def series(start: datetime.date, stop: datetime.date) -> Values:
        moments: list[datetime.datetime] = []
        moment, last = add_interval(start, 0, datetime.timedelta()), add_interval(stop, 0, datetime.timedelta())
        if delta and not months:  # of months there are not so many
            check_length((last - moment) // delta, "list")
        while (months or delta) and not ends_before(moment, last):
            moments.append(moment)
            moment = add_interval(moment, months, delta)
        return tuple(moments)

    return series


def _of_series(closed: bool) -> tuple[Rule, ...]:
    def of_moments(kinds: Arguments) -> Overload | None:
        interval = kinds.written[2] if len(kinds) == 3 else None
        kind = None if len(kinds) < 2 else common(kinds[0], kinds[1])
        if kind not in MOMENTS or len(kinds) != 3:
            return None
        moment = Kind.TIMESTAMP if kind is Kind.DATE else kind
        if not isinstance(interval, tuple):
            each_by = lambda start, stop, step: _moments(closed, 0, step)(start, stop)  # noqa: E731
            return overload(each_by, list_of(moment), moment, moment, Kind.INTERVAL)
        return Overload((moment, moment, None), list_of(moment), _moments(closed, *interval))

    series = _series(closed)
    return (*(overload(series, list_of(_I), *[_I] * count) for count in (1, 2, 3)), of_moments)


def _any_of(decisive: bool) -> Callable[[Values], bool | None]:
    def decided(values: Values) -> bool | None:
        return decisive if decisive in values else None if all(value is None for value in values) else not decisive

    return decided


# -- overloads, for lists of any kind ------------------------------------------------------------------------------


def _of_list(f: Callable[..., Any], result: Callable[[Kind], Kind] | Kind, *more: Kind, optional: bool = False) -> Rule:
    """Return the rule of a function of a list and other arguments, whose ``result`` may be one of the kind of its elements."""

    def rule(kinds: Arguments) -> Overload | None:
        inner = kinds[0].element
        if inner is None:
            return None
        return overload(f, result if isinstance(result, Kind) else result(inner), kinds[0], *more, optional=optional)

    return taking(1 + len(more), rule)


def _of_element(f: Callable[..., Any], result: Kind | None = None, place: int = 0) -> Rule:
    """Return the rule of a function of a list, the argument at ``place``, and a value that could be in it.

    Without a ``result``, that is a list with the value; else it may be ``None``.
    """

    def rule(kinds: Arguments) -> Overload | None:
        inner = kinds[place].element
        kind = None if inner is None else common(inner, kinds[1 - place])
        if kind is None:
            return None
        expected = (list_of(kind), kind) if place == 0 else (kind, list_of(kind))
        return seeing_nulls(f, result or list_of(kind), expected, optional=result is not None)

    return taking(2, rule)


def _of_lists(f: Callable[..., Any], result: Kind | None = None) -> Rule:
    """Return the rule of a function of lists that are alike; without ``result``, that is another one like them."""

    def rule(kinds: Arguments) -> Overload | None:
        kind: Kind | None = Kind.NULL
        for own in kinds:
            kind = None if kind is None else common(kind, own)
        if kind is None or kind.element is None:
            return None
        if result is None:
            return seeing_nulls(f, kind, [kind] * len(kinds), optional=False)
        return overload(f, result, *[kind] * len(kinds)) if len(kinds) == 2 else None

    return rule


def concatenated(*lists: Values | None) -> Values:
    """Return lists one behind the other, without those that are ``None``."""
    check_length(sum(len(values or ()) for values in lists), "list")
    return tuple(value for values in lists for value in values or ())


def _flat(kinds: Arguments) -> Overload | None:
    inner = kinds[0].element
    if inner is None or inner.element is None:
        return None
    return overload(lambda lists: concatenated(*lists), inner, kinds[0])


def _joined(kinds: Arguments) -> Overload | None:
    inner = kinds[0].element
    convert = None if inner is None else as_text(inner)
    return None if convert is None else seeing_nulls(_join(convert), Kind.TEXT, (kinds[0], Kind.TEXT))


def _numeric(f: Callable[[Values], Any], result: Kind | None = None) -> Rule:
    def rule(kinds: Arguments) -> Overload | None:
        inner = kinds[0].element
        if inner is None or inner.base not in NUMBERS:
            return None
        if result is None and inner.scale is not None:
            fit = fitting(38, inner.scale)
            return overload(lambda values: None if (total := f(values)) is None else fit(total), inner, kinds[0], optional=True)
        return overload(f, result or (Kind.DOUBLE if inner is Kind.REAL else inner), kinds[0], optional=True)

    return taking(1, rule)


def _sorted(*fixed: str) -> Rule:
    """Return the rule of sorting: an order and the place of ``NULL`` are literal texts."""

    def rule(kinds: Arguments) -> Overload | None:
        options = [text.upper() if isinstance(text, str) else "" for text in kinds.written[1:]]
        order, nulls, *more = [*fixed, *options, *("ASC", "NULLS LAST")[len(fixed) + len(options) :]]
        if more or kinds[0].element is None or order not in ("ASC", "DESC") or nulls not in ("NULLS FIRST", "NULLS LAST"):
            return None
        descending, nulls_first = order == "DESC", nulls == "NULLS FIRST"
        passed = (kinds[0], *[None] * len(options))
        return Overload(passed, kinds[0], lambda values: ordered(values, descending, nulls_first))

    return rule


def _made(kinds: Arguments) -> Overload:
    kind = kinds.together()
    return seeing_nulls(lambda *values: values, list_of(kind), [kind] * len(kinds), optional=False)


def _struct(kinds: Arguments) -> Overload:
    names, values = [lower_case(name) for name in kinds.written[::2]], kinds[1::2]
    if len(set(names)) < len(names):
        raise SqlError("the struct has a field twice")
    if Kind.MONTHS in values:
        raise SqlError(NO_LENGTH)
    expected = [kind for value in values for kind in (None, value)]
    return Overload(
        tuple(expected), struct_of(tuple(zip(names, values))), lambda *fields: fields, lambda nullables: False, "nulls"
    )


def _row(kinds: Arguments) -> Overload:
    if Kind.MONTHS in kinds:
        raise SqlError(NO_LENGTH)
    return seeing_nulls(lambda *values: values, struct_of(tuple(("", kind) for kind in kinds)), kinds, optional=False)


def _zipped(kinds: Arguments) -> Overload | None:
    cuts = kinds[-1] is Kind.BOOLEAN
    elements = [kind.element for kind in (kinds[:-1] if cuts else kinds)]
    present = [kind for kind in elements if kind is not None]
    if not present or len(present) < len(elements):
        return None

    def zipped(*values: Any) -> Values:
        lists = [part or () for part in (values[:-1] if cuts else values)]
        return tuple(zip(*lists) if cuts and values[-1] else zip_longest(*lists))

    return seeing_nulls(zipped, list_of(struct_of(tuple(("", kind) for kind in present))), kinds, optional=False)


def _resized(kinds: Arguments) -> Overload | None:
    element = kinds[0].element
    if element is None or not 2 <= len(kinds) <= 3:
        return None

    def resized(values: Values | None, size: int | None, filler: Any = None) -> Values | None:
        if size is not None and size < 0:
            raise SqlError(f"a list has no {size} elements")
        check_length(size or 0, "list")
        return None if values is None else (*values[: size or 0], *(filler,) * ((size or 0) - len(values)))

    return seeing_nulls(resized, kinds[0], (kinds[0], Kind.INTEGER, *[element] * (len(kinds) - 2)))


def _chosen(kind: Kind, choose: Callable[[Values, Values], Iterable[Any]]) -> Rule:
    """Return the rule of choosing elements by those of a list beside it."""

    def chosen(values: Values, by: Values) -> Values:
        if None in by:
            raise SqlError("a list by which elements are chosen has no NULL")
        return tuple(choose(values, by))

    return taking(2, lambda kinds: None if kinds[0].element is None else overload(chosen, kinds[0], kinds[0], list_of(kind)))


def _marked(values: Values, marks: Values) -> Iterable[Any]:
    return (value for value, mark in zip_longest(values, marks) if mark)


def _numbered(values: Values, numbers: Values) -> Iterable[Any]:
    return (values[number - 1] if 0 < number <= len(values) else None for number in numbers)


_AGGREGATES: Final = ("any_value", "avg", "bool_and", "bool_or", "count", "first", "last", "max", "min", "sum")


def _aggregated(kinds: Arguments) -> Overload | None:
    """Return the function ``list_x`` of the name ``x`` that is the second argument."""
    name = kinds.written[1] if len(kinds) == 2 else None
    function = LIST_FUNCTIONS[f"list_{name.lower()}"] if isinstance(name, str) and name.lower() in _AGGREGATES else None
    own = Arguments(kinds[:1], kinds.written[:1])
    made = [rule if isinstance(rule, Overload) else rule(own) for rule in function.rules] if function is not None else []
    return next((attrs.evolve(one, kinds=(*one.kinds, None)) for one in made if one is not None and len(one.kinds) == 1), None)


def _field(kinds: Arguments) -> Overload:
    struct, name = kinds[0], kinds.written[1]
    if not isinstance(name, str):
        raise SqlError("struct_extract takes the literal name of a field")
    names = [field for field, _ in struct.fields]
    if lower_case(name) not in names:
        raise SqlError(f"{struct.value} has no field {name}" if names else f"{struct.value} has no fields")
    place = names.index(lower_case(name))
    return Overload((struct, None), struct.fields[place][1], lambda value: value[place], always)


def _element(kind: Kind) -> Kind:
    return kind


# -- maps ----------------------------------------------------------------------------------------------------------


def _map(kinds: Arguments) -> Overload | None:
    """Return the map of a list of keys and one of values."""
    keys, values = (kind.element for kind in kinds)
    if keys is None or values is None:
        return None

    def paired(keys: Values, values: Values) -> Values:
        if len(keys) != len(values):
            raise SqlError(f"a map has as many keys as values, and here are {len(keys)} and {len(values)}")
        return checked_map(tuple(zip(keys, values)))

    return overload(paired, map_of(keys, values), *kinds)


def _values_of(entries: Values | None, key: Any) -> Values | None:
    return None if entries is None else tuple(value for own, value in entries if own == key)


def _of_map(
    names: str, f: Callable[..., Any], result: Callable[[Kind, Kind], Kind], *, by_key: bool = False
) -> dict[str, SqlFunction]:
    """Return a function of a map, ``by_key`` also of a key, whose result has a kind made of those of keys and values."""

    def rule(kinds: Arguments) -> Overload | None:
        if kinds[0].entry is None:
            return None
        (_, key), (_, value) = kinds[0].entry.fields
        if f is _values_of:  # of no key, there are none
            return seeing_nulls(f, result(key, value), (kinds[0], key))
        return overload(f, result(key, value), kinds[0], *([key] if by_key else []), optional=by_key)

    return named(names, taking(1 + by_key, rule))


def _from_entries(kinds: Arguments) -> Overload | None:
    entry = kinds[0].element
    if entry is None or len(entry.fields) != 2:
        return None
    return overload(checked_map, map_of(*(kind for _, kind in entry.fields)), kinds[0])


def _united(kinds: Arguments) -> Overload | None:
    kind = kinds.together()
    if kind.entry is None:
        return None

    def united(*maps: Values | None) -> Values | None:
        present = [entries for entries in maps if entries is not None]
        return tuple(dict(entry for entries in present for entry in entries).items()) if present else None

    return Overload((kind,) * len(kinds), kind, united, all, "nulls")


LIST_FUNCTIONS: Final = {
    **named("length, len, char_length, character_length", overload(len, _I, _T), _of_list(len, _I)),
    **named("array_length", _of_list(len, _I)),
    **named(
        "list_extract, list_element, array_extract",
        _of_list(element, _element, _I, optional=True),
        overload(lambda text, number: element(tuple(text), number) or "", _T, _T, _I),
    ),
    **named("list_slice, array_slice", _of_list(part, list_of, _I, _I), overload(text_part, _T, _T, _I, _I)),
    **named("list_contains, list_has, array_contains, array_has", _of_element(_contains, _B)),
    **named(
        "list_position, list_indexof, array_position",
        _of_element(_position, _I),
    ),
    **named("list_concat, list_cat, array_concat, array_cat", _of_lists(concatenated)),
    **named("list_append, array_append", _of_element(lambda values, value: (*(values or ()), value))),
    **named("list_prepend, array_prepend", _of_element(lambda value, values: (value, *(values or ())), place=1)),
    **named("list_min", _of_list(_extreme(min), _element, optional=True)),
    **named("list_max", _of_list(_extreme(max), _element, optional=True)),
    **named("list_sum", _numeric(_sum)),
    **named("list_avg", _numeric(_average, Kind.DOUBLE)),
    **named("list_count", _of_list(lambda values: sum(value is not None for value in values), _I)),
    **named("list_unique", _of_list(lambda values: len({value for value in values if value is not None}), _I)),
    **named("list_has_any", _of_lists(lambda one, other: any(value in other for value in one if value is not None), _B)),
    **named("list_has_all", _of_lists(lambda one, other: all(value in one for value in other if value is not None), _B)),
    **named("list_reverse, array_reverse", _of_list(lambda values: values[::-1], list_of)),
    **named("list_sort, array_sort", _sorted()),
    **named("list_reverse_sort, array_reverse_sort", _sorted("DESC")),
    **named("list_first", _of_list(lambda values: values[0] if values else None, _element, optional=True)),
    **named("list_last", _of_list(lambda values: values[-1] if values else None, _element, optional=True)),
    **named(
        "list_any_value",
        _of_list(lambda values: next((value for value in values if value is not None), None), _element, optional=True),
    ),
    **named("list_bool_and", overload(_any_of(False), _B, list_of(_B), optional=True)),
    **named("list_bool_or", overload(_any_of(True), _B, list_of(_B), optional=True)),
    **named("repeat", overload(repeat, _T, _T, _I), _of_list(_repeated, list_of, _I)),
    **named("range", *_of_series(False)),
    **named("generate_series", *_of_series(True)),
    **named("row", _row),
    **named("list_zip, array_zip", _zipped),
    **named("list_resize, array_resize", _resized),
    **named("list_where, array_where", _chosen(Kind.BOOLEAN, _marked)),
    **named("list_select, array_select", _chosen(Kind.INTEGER, _numbered)),
    **named("list_aggregate, list_aggr, array_aggregate, array_aggr, aggregate", _aggregated),
    **named("flatten", taking(1, _flat)),
    **named("array_to_string", taking(2, _joined)),
    **named("list_value, list_pack", Overload((), list_of(Kind.NULL), lambda: ()), _made),
    **named("map", taking(2, _map), Overload((), map_of(Kind.NULL, Kind.NULL), lambda: ())),
    **named("map_from_entries", taking(1, _from_entries)),
    **named("map_concat", _united),
    **_of_map("map_keys", lambda entries: tuple(key for key, _ in entries), lambda key, value: list_of(key)),
    **_of_map("map_values", lambda entries: tuple(value for _, value in entries), lambda key, value: list_of(value)),
    **_of_map("map_entries", tuple, lambda key, value: list_of(struct_of((("key", key), ("value", value))))),
    **_of_map("cardinality", len, lambda key, value: _I),
    **_of_map("map_contains", lambda entries, key: key in dict(entries), lambda key, value: _B, by_key=True),
    **_of_map("map_extract_value", lambda entries, key: dict(entries).get(key), lambda key, value: value, by_key=True),
    **_of_map("map_extract, element_at", _values_of, lambda key, value: list_of(value), by_key=True),
    **named("struct_pack", _struct),
    **named("struct_extract", taking(2, _field)),
}
