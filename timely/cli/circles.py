"""What the demo has found: circles of packages that require each other, and the counts around them.

The plain values that stand between the engines, which find the circles, and the table and the picture, which show
them. The invariant: everything has one order (circles by size, packages by how many in their circle require them, then
by name), so that two engines that found the same say the same. A caller may rely on that order, and on a circle's
requirements being between its own packages, each pair once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

import attrs

KINDS = ("depends", "recommends", "suggests")
"""The kinds of requirement, the strictest first."""


@attrs.frozen
class Package:
    """A package of a circle; ``requirers`` counts the packages of the circle that require it."""

    name: str
    description: str
    requirers: int


@attrs.frozen
class Requirement:
    """``package`` requires ``requires``; ``kind`` is the strictest of the kinds in which it does."""

    package: str
    requires: str
    kind: str


@attrs.frozen
class Circle:
    """Packages of which each requires each other, directly or by way of others of them.

    ``name`` is the smallest of their names, which names the component. ``packages`` come most required first.
    """

    name: str
    packages: tuple[Package, ...]
    requirements: tuple[Requirement, ...]


@attrs.frozen
class Findings:
    """What a run of the demo found.

    ``packages`` and ``requirements`` count what was looked at, ``circles`` the components of more than one package,
    ``within`` the packages in them; ``largest`` are the largest circles, as many as were asked for.
    """

    packages: int
    requirements: int
    circles: int
    within: int
    largest: tuple[Circle, ...]


def assemble(
    members: Iterable[tuple[str, str, str | None]], requirements: Iterable[tuple[str, str, str]]
) -> tuple[Circle, ...]:
    """Return the circles, largest first, of ``members`` as ``(component, package, description)`` in any order.

    ``requirements`` are ``(package, requires, kind)`` between packages of one circle. A description that is None is
    shown as empty. Source: the strongly connected components of a directed graph.

    >>> circles = assemble([("a", "b", "bee"), ("a", "a", None)], [("a", "b", "suggests"), ("b", "a", "depends")])
    >>> [(circle.name, [package.name for package in circle.packages]) for circle in circles]
    [('a', ['a', 'b'])]
    """
    component: dict[str, str] = {}
    described: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for name, package, description in members:
        component[package] = name
        described[name][package] = description or ""
    strictest = _strictest(requirements)
    within: defaultdict[str, list[Requirement]] = defaultdict(list)
    requirers: Counter[str] = Counter()
    for package, requires in sorted(strictest):
        within[component[package]].append(Requirement(package, requires, strictest[package, requires]))
        requirers[requires] += 1
    circles = [
        Circle(name, _most_required_first(packages, requirers), tuple(within[name]))
        for name, packages in described.items()
    ]
    return tuple(sorted(circles, key=lambda circle: (-len(circle.packages), circle.name)))


def _strictest(requirements: Iterable[tuple[str, str, str]]) -> dict[tuple[str, str], str]:
    """Return the strictest kind for each pair; a package that requires itself is no news."""
    kinds: dict[tuple[str, str], str] = {}
    for package, requires, kind in requirements:
        pair = package, requires
        if package != requires and KINDS.index(kind) <= KINDS.index(kinds.get(pair, kind)):
            kinds[pair] = kind
    return kinds


def _most_required_first(described: dict[str, str], requirers: Counter[str]) -> tuple[Package, ...]:
    packages = [Package(name, description, requirers[name]) for name, description in described.items()]
    return tuple(sorted(packages, key=lambda package: (-package.requirers, package.name)))
