"""``GROUP BY`` with several sets of keys: ``GROUPING SETS``, ``ROLLUP`` and ``CUBE`` are the groups of each set, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from timely.differential.collections import Collection
from timely.differential.tables.expressions.bound import Expr, NamedExpr, Ref
from timely.differential.tables.expressions.relation import Relation
from timely.differential.tables.expressions.scalar_compiler import Row
from timely.differential.tables.operators.groups import empty_group, grouped
from timely.differential.tables.values.kinds import Column, Kind

Places = tuple[int, ...]
"""Some of the keys, by their places among all."""


@attrs.frozen
class GroupingCall(Expr):
    """``GROUPING`` of keys, in an expression."""

    keys: tuple[Expr, ...]


@attrs.frozen
class Grouping:
    """``GROUPING``: the number of the column, and the keys that its bits are of."""

    id: int
    keys: Places


def grouped_by_sets(
    relation: Relation,
    outer: Sequence[Ref],
    domain: Relation | None,
    keys: Sequence[NamedExpr],
    sets: Sequence[Places],
    aggregates: Sequence[NamedExpr],
    groupings: Sequence[Grouping],
) -> Relation:
    """Return the groups of each set of keys; keys that are not in a set are null there.

    With a ``domain``, each of its rows has groups of its own; its columns ``outer``, which are also of ``relation``, come first.
    """
    around = [NamedExpr(ref.id, ref) for ref in outer]
    made = [
        _filled(domain, chosen, grouped(relation, [*around, *(keys[place] for place in chosen)], aggregates), aggregates)
        for chosen in sets
    ]
    if len(made) == 1 and not groupings:
        return made[0]
    columns: dict[int, Column] = {}
    parts: list[Collection[Any, Row]] = []
    ids = [part.id for part in (*around, *keys, *aggregates)]
    for chosen, part in zip(sets, made):
        places = part.scope.places
        columns.update((number, part.columns[place]) for number, place in places.items())
        numbers = [_number(grouping, chosen) for grouping in groupings]
        parts.append(_placed(part.collection, [places.get(number) for number in ids], numbers))
    for place, key in enumerate(keys):
        if not all(place in chosen for chosen in sets):
            columns[key.id] = attrs.evolve(columns[key.id], nullable=True)
    marked = Relation(parts[0].concat(*parts[1:]), tuple(columns[number] for number in ids), tuple(ids))
    more = [Column("grouping", Kind.INTEGER, False) for _ in groupings]
    return marked.extended(marked.collection, more, [grouping.id for grouping in groupings])


def _placed(rows: Collection[Any, Row], places: Sequence[int | None], constants: Sequence[int]) -> Collection[Any, Row]:
    return rows.map(lambda row: (*(None if place is None else row[place] for place in places), *constants))


def _number(grouping: Grouping, chosen: Places) -> int:
    """Return the number whose bits say which arguments of ``GROUPING`` are not keys of a set."""
    number = 0
    for key in grouping.keys:
        number = 2 * number + (key not in chosen)
    return number


def _filled(domain: Relation | None, chosen: Places, groups: Relation, aggregates: Sequence[NamedExpr]) -> Relation:
    """Return groups with one for each row of the domain that has no rows, where a group without keys is always there."""
    if domain is None or chosen:
        return groups
    empty, width = empty_group(aggregates), len(domain.columns)
    absent = domain.collection.minus(groups.collection.map(lambda row: row[:width])).map(lambda row: row + empty)
    return groups.with_collection(groups.collection.concat(absent))
