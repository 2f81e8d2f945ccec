"""``GROUP BY``: the sets of keys that ``GROUPING SETS``, ``ROLLUP`` and ``CUBE`` are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations, product
from typing import Final

from sqlglot import exp

from timely.differential.tables.expressions.bound import Expr
from timely.differential.tables.names.reader import listed, read
from timely.differential.tables.names.refusals import refusal

_MOST: Final = 1024
"""Sets of keys: each is a group of its own in the dataflow, and takes some 3 ms to plan."""

Keys = list[Expr]
Read = Callable[[exp.Expr], Expr]


def bare(node: exp.Expr) -> exp.Expr:
    """Return what stands in parentheses."""
    while isinstance(node, exp.Paren):
        (node,) = read(node, "this")
    return node


def column_number(node: exp.Expr) -> int | None:
    """Return the number of a column that a key or an order is, or ``None`` for others."""
    part = node.unnest()
    if not part.is_int:
        return None
    number = int(part.to_py())
    if number < 1:
        raise refusal(node, "the numbers of columns begin with 1")
    return number


def key_sets(group: exp.Expr, parts: Sequence[exp.Expr], key: Read) -> list[Keys]:
    """Return the sets of keys of ``GROUP BY``, each of which is read by ``key``."""
    if (count := math.prod(map(_count, parts))) > _MOST:
        raise refusal(group, f"these are {count:,} sets of keys, and {_MOST:,} at most are grouped by")
    chosen = [_sets(bare(part), key, numbers=True) for part in parts]
    return [list(dict.fromkeys(one for keys in sets for one in keys)) for sets in product(*chosen)]


def _parts(node: exp.Expr) -> list[exp.Expr]:
    return listed(read(node, "expressions")[0])


def _count(node: exp.Expr) -> int:
    """Return how many sets of keys a part of ``GROUP BY`` has, which are not made for that."""
    node = bare(node)
    if isinstance(node, exp.GroupingSets):
        return sum(map(_count, _parts(node)))
    keys = len(_parts(node)) if isinstance(node, exp.Rollup | exp.Cube) else 0
    return keys + 1 if isinstance(node, exp.Rollup) else 2**keys


def _sets(node: exp.Expr, key: Read, *, numbers: bool = False) -> list[Keys]:
    if isinstance(node, exp.Rollup):
        keys = [_keys(part, key) for part in _parts(node)]
        return [[one for part in keys[:count] for one in part] for count in range(len(keys), -1, -1)]
    if isinstance(node, exp.Cube):
        keys = [_keys(part, key) for part in _parts(node)]
        chosen = [subset for count in range(len(keys), -1, -1) for subset in combinations(keys, count)]
        return [[one for part in parts for one in part] for parts in chosen]
    if isinstance(node, exp.GroupingSets):
        return [subset for part in _parts(node) for subset in _sets(bare(part), key)]
    return [_keys(node, key, numbers=numbers)]


def _keys(node: exp.Expr, key: Read, *, numbers: bool = False) -> Keys:
    parts = _parts(node) if isinstance(node, exp.Tuple) else [node]
    for part in parts:
        inner = bare(part)
        if isinstance(inner, exp.Literal) and not inner.is_string and not (numbers and part is node):
            raise refusal(inner, "a number in a set of keys is not supported: name the column")
    return [key(part) for part in parts]
