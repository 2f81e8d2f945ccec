"""What operators return, as functions of the counts that their inputs hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

Counts = Mapping[Any, int]


def added(counts: Any) -> dict[Any, int]:
    """Return the sum of ``(record, count)``, without zeros."""
    sums: Counter[Any] = Counter()
    for record, count in counts:
        sums[record] += count
    return {record: count for record, count in sums.items() if count}


def mapped(f: Callable[[Any], Any], counts: Counts) -> dict[Any, int]:
    return added((f(record), count) for record, count in counts.items())


def filtered(p: Callable[[Any], Any], counts: Counts) -> dict[Any, int]:
    return {record: count for record, count in counts.items() if p(record)}


def summed(*several: Counts) -> dict[Any, int]:
    return added(item for counts in several for item in counts.items())


def negated(counts: Counts) -> dict[Any, int]:
    return {record: -count for record, count in counts.items()}


def joined(left: Counts, right: Counts, f: Callable[[Any, Any, Any], Any] | None = None) -> dict[Any, int]:
    return added(
        ((k, (v, w)) if f is None else f(k, v, w), one * other)
        for (k, v), one in left.items()
        for (key, w), other in right.items()
        if k == key
    )


def semijoined(left: Counts, keys: Counts) -> dict[Any, int]:
    return added(((k, v), count * keys.get(k, 0)) for (k, v), count in left.items())


def antijoined(left: Counts, keys: Counts) -> dict[Any, int]:
    return summed(left, negated(semijoined(left, keys)))


def groups(counts: Counts) -> dict[Any, list[tuple[Any, int]]]:
    values_by_key: dict[Any, list[tuple[Any, int]]] = {}
    for (key, value), count in counts.items():
        if count:
            values_by_key.setdefault(key, []).append((value, count))
    return {key: sorted(values) for key, values in values_by_key.items()}


def reduced(f: Callable[[Any, list[tuple[Any, int]]], Any], counts: Counts) -> dict[Any, int]:
    return added(((key, value), count) for key, values in groups(counts).items() for value, count in f(key, values))


def distinct(counts: Counts) -> dict[Any, int]:
    return {record: 1 for record, count in counts.items() if count > 0}


def counted(counts: Counts) -> dict[Any, int]:
    return {(record, count): 1 for record, count in counts.items() if count}


def number(key: Any, values: list[tuple[Any, int]]) -> Any:
    return [(sum(count for _, count in values), 1)]


def total(key: Any, values: list[tuple[Any, int]]) -> Any:
    return [(sum(value * count for value, count in values), 1)]


def least(key: Any, values: list[tuple[Any, int]]) -> Any:
    positive = [value for value, count in values if count > 0]
    return [(min(positive), 1)] if positive else []


def most(key: Any, values: list[tuple[Any, int]]) -> Any:
    positive = [value for value, count in values if count > 0]
    return [(max(positive), 1)] if positive else []


def first(k: int) -> Callable[[Any, list[tuple[Any, int]]], Any]:
    def best(key: Any, values: list[tuple[Any, int]]) -> Any:
        left = k
        for value, count in sorted(values, reverse=True):
            if count > 0 and left > 0:
                yield value, min(left, count)
                left -= count

    return best


def mixed(key: Any, values: list[tuple[Any, int]]) -> Any:
    """A function of everything that a reduction may see, its counts included."""
    yield values[0][0], len(values)
    yield sum(value * count for value, count in values) % 4, values[-1][1]
