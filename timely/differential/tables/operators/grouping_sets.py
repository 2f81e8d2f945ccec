"""``GROUP BY`` with several sets of keys: ``GROUPING SETS``, ``ROLLUP`` and ``CUBE`` are the groups of each set, side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, product
from typing import Any, Final

import attrs
from sqlglot import exp

from timely.differential.collections import Collection
from timely.differential.tables.expressions.relation import Relation, hidden
from timely.differential.tables.expressions.scalar_compiler import Row
from timely.differential.tables.operators.groups import aggregates_in, empty_group, grouped
from timely.differential.tables.values.kinds import Column, Kind
from timely.differential.tables.values.refusals import refusal

Keys = tuple[exp.Expr, ...]

_MOST: Final = 1024
"""Sets of keys: each is a group of its own in the dataflow, and takes some 3 ms to plan."""

GROUPING: Final = (exp.Grouping, exp.GroupingId)


def key_sets(group: exp.Expr, outputs: Sequence[exp.Expr]) -> list[Keys]:
    """Return the sets of keys of ``GROUP BY``; of ``ALL``, what of ``outputs`` is no aggregate."""
    if group.args.get("all"):
        return [tuple(_unwrapped(output.unalias()) for output in outputs if not aggregates_in([output]))]
    if (count := math.prod(map(_count, group.expressions))) > _MOST:
        raise refusal(group, f"these are {count:,} sets of keys, and {_MOST:,} at most are grouped by")
    parts = [_sets(_unwrapped(part)) for part in group.expressions]
    return [tuple(dict.fromkeys(key for keys in chosen for key in keys)) for chosen in product(*parts)]


def _count(node: exp.Expr) -> int:
    """Return how many sets of keys a part of ``GROUP BY`` has, which are not made for that."""
    node = _unwrapped(node)
    if isinstance(node, exp.GroupingSets):
        return sum(map(_count, node.expressions))
    keys = len(node.expressions)
    return keys + 1 if isinstance(node, exp.Rollup) else 2**keys if isinstance(node, exp.Cube) else 1


def _sets(node: exp.Expr) -> list[Keys]:
    if isinstance(node, exp.Rollup):
        keys = [_keys(part) for part in node.expressions]
        return [tuple(key for part in keys[:count] for key in part) for count in range(len(keys), -1, -1)]
    if isinstance(node, exp.Cube):
        keys = [_keys(part) for part in node.expressions]
        chosen = [subset for count in range(len(keys), -1, -1) for subset in combinations(keys, count)]
        return [tuple(key for part in parts for key in part) for parts in chosen]
    if isinstance(node, exp.GroupingSets):
        return [subset for part in node.expressions for subset in _sets(_unwrapped(part))]
    return [_keys(node)]


def _keys(node: exp.Expr) -> Keys:
    keys = tuple(_unwrapped(part) for part in node.expressions) if isinstance(node, exp.Tuple) else (_unwrapped(node),)
    for key in keys:
        if isinstance(key, exp.Literal) and not key.is_string and not isinstance(node.parent, exp.Group):
            raise refusal(key, "a number in a set of keys is not supported: name the column")
    return keys


def _unwrapped(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def grouped_by_sets(
    relation: Relation, domain: Relation | None, sets: Sequence[Keys], aggregates: Sequence[exp.Expr]
) -> Relation:
    """Return the groups of each set of keys; keys that are not in a set are null there.

    With a ``domain``, each of its rows has groups of its own; its columns, which are also columns of ``relation``, come first.
    """
    outer = [] if domain is None else hidden(len(domain.columns))
    around = {} if domain is None else domain.places
    computed = [node for node in aggregates if not isinstance(node, GROUPING)]
    marks = [node for node in aggregates if isinstance(node, GROUPING)]
    keys = list(dict.fromkeys(key for chosen in sets for key in chosen))
    groupings = [_filled(relation, domain, chosen, grouped(relation, [*outer, *chosen], computed), computed) for chosen in sets]
    if len(groupings) == 1 and not marks:
        return attrs.evolve(groupings[0], places={**around, **groupings[0].places})
    parts: list[Collection[Any, Row]] = []
    columns: dict[exp.Expr, Column] = {}
    for chosen, part in zip(sets, groupings):
        constants = [_mark(mark, keys, chosen) for mark in marks]
        places: list[int | None] = [part.places[node] for node in outer]
        places += [part.places[node] if node in chosen or node not in keys else None for node in [*keys, *computed]]
        for node, place in zip([*outer, *keys, *computed], places):
            if place is not None:
                columns[node] = part.columns[place]
        parts.append(_placed(part.collection, places, constants))
    for key in keys:
        columns[key] = attrs.evolve(columns[key], nullable=columns[key].nullable or len(sets) > 1)
    nodes = [*outer, *keys, *computed]
    made = (*(columns[node] for node in nodes), *(Column("grouping", Kind.INTEGER, False) for _ in marks))
    numbered = {**around} | {node: index for index, node in enumerate([*nodes, *marks])}
    return Relation(parts[0].concat(*parts[1:]), made, numbered, relation.tables)


def _placed(rows: Collection[Any, Row], places: Sequence[int | None], constants: Sequence[int]) -> Collection[Any, Row]:
    return rows.map(lambda row: (*(None if place is None else row[place] for place in places), *constants))


def _mark(node: exp.Expr, keys: Sequence[exp.Expr], chosen: Keys) -> int:
    """Return the number whose bits say which arguments of ``GROUPING`` are not keys of a set."""
    arguments = [_unwrapped(argument) for argument in node.expressions]
    number = 0
    for argument in arguments:
        if argument not in keys:
            raise refusal(node, "GROUPING takes keys of GROUP BY")
        number = 2 * number + (argument not in chosen)
    return number


def _filled(
    relation: Relation, domain: Relation | None, chosen: Keys, groups: Relation, aggregates: Sequence[exp.Expr]
) -> Relation:
    """Return groups with one for each row of the domain that has no rows, where a group without keys is always there."""
    if domain is None or chosen:
        return groups
    empty, width = empty_group(relation, aggregates), len(domain.columns)
    absent = domain.collection.minus(groups.collection.map(lambda row: row[:width])).map(lambda row: row + empty)
    return groups.with_collection(groups.collection.concat(absent))
