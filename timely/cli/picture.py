"""The circles as a picture: an SVG with a panel for each circle, a dot for each package, an arrow for each requirement.

Written with nothing but the standard library. The packages stand on a ring, at even heights rather than at even angles,
so that every label is horizontal, stands outside the ring, and is a line away from its neighbours. The invariant:
labels never overlap, however large a circle is; of a circle with more than ``SHOWN`` packages the most required ones
are drawn, and the panel says so. A caller may assume that the same circles give the same picture, to the byte.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

import attrs

from timely.cli.circles import KINDS, Circle, Package, Requirement

SHOWN = 24
"""Packages that are drawn of one circle, at most."""

COLOURS = {"depends": "#1f4e79", "recommends": "#d08a1d", "suggests": "#8fae8b"}
"""The colour of the arrows of each kind."""

_RADIUS = 170.0
_LABEL = 34
_CHARACTER = 6.7
_HEADER = 62.0
_COLUMNS = 2
_LEGEND = 64.0

Point = tuple[float, float]


def picture(circles: Sequence[Circle]) -> str:
    """Return an SVG document with a panel for each of ``circles``, two beside each other.

    >>> from timely.cli.circles import assemble
    >>> svg = picture(assemble([("a", "a", ""), ("a", "b", "")], [("a", "b", "depends"), ("b", "a", "depends")]))
    >>> svg.count("<circle"), svg.count('class="depends"'), "2 packages" in svg
    (2, 2, True)
    """
    panels = [Panel.of(circle) for circle in circles]
    across = max([panel.half_width for panel in panels], default=0.0) * 2
    down = _HEADER + 2 * _RADIUS + 40
    columns = min(_COLUMNS, max(len(panels), 1))
    rows = -(-len(panels) // columns)
    width, height = max(columns * across, 620.0), rows * down + _LEGEND
    drawn = {requirement.kind for panel in panels for requirement in panel.requirements}
    lines = [*_opening(width, height), *_legend(width, [kind for kind in KINDS if kind in drawn])]
    for place, panel in enumerate(panels):
        x = (place % columns + 0.5) * across
        y = (place // columns) * down + _LEGEND
        lines.append(f'<g transform="translate({x:.1f} {y:.1f})">')
        lines.extend(panel.draw())
        lines.append("</g>")
    return "\n".join([*lines, "</svg>", ""])


@attrs.frozen
class Panel:
    """One circle, laid out: the packages that are drawn and where, and the requirements between them."""

    circle: Circle
    packages: tuple[Package, ...]
    requirements: tuple[Requirement, ...]
    places: dict[str, Point]

    @classmethod
    def of(cls, circle: Circle) -> Panel:
        """Lay out ``circle``, or as much of it as can be shown."""
        packages = circle.packages[:SHOWN]
        names = {package.name for package in packages}
        requirements = tuple(r for r in circle.requirements if r.package in names and r.requires in names)
        return cls(circle, packages, requirements, arrange([p.name for p in packages], requirements))

    @property
    def half_width(self) -> float:
        """How far the panel reaches to either side, in pixels."""
        longest = max(len(_label(package.name)) for package in self.packages)
        return _RADIUS + 24 + longest * _CHARACTER

    def draw(self) -> Iterator[str]:
        """Yield the lines of the panel, whose origin is in the middle of its upper edge."""
        total = len(self.circle.packages)
        shown = f"{total:,} packages"
        if total > len(self.packages):
            shown = f"{total:,} packages, of which the {len(self.packages)} that most others of them require"
        yield f'<text class="name" y="20">{escape(self.circle.name)}</text>'
        yield f'<text class="note" y="38">{shown}</text>'
        yield f'<g transform="translate(0 {_HEADER + _RADIUS:.1f})">'
        loosest_first = sorted(self.requirements, key=lambda r: -KINDS.index(r.kind))
        for requirement in loosest_first:
            yield _arrow(self.places[requirement.package], self.places[requirement.requires], requirement.kind)
        most = max(package.requirers for package in self.packages)
        for package in self.packages:
            yield from _dot(package, self.places[package.name], most)
        yield "</g>"


def arrange(names: Sequence[str], requirements: Sequence[Requirement]) -> dict[str, Point]:
    """Return a place on the ring for each of ``names``, those that require each other near each other.

    It starts from the order given and exchanges two places as long as that makes the arrows shorter in all.

    >>> arrange(["a", "b"], [])
    {'a': (170.0, 0.0), 'b': (-170.0, 0.0)}
    """
    places = ring(len(names))
    near: dict[str, list[str]] = {name: [] for name in names}
    for requirement in requirements:
        near[requirement.package].append(requirement.requires)
        near[requirement.requires].append(requirement.package)
    where = dict(zip(names, places))
    improved = True
    while improved:
        improved = False
        for index, one in enumerate(names):
            for other in names[:index]:
                before = _length(one, near, where) + _length(other, near, where)
                where[one], where[other] = where[other], where[one]
                if _length(one, near, where) + _length(other, near, where) < before - 1e-6:
                    improved = True
                else:
                    where[one], where[other] = where[other], where[one]
    return where


def ring(count: int) -> list[Point]:
    """Return ``count`` places clockwise on the ring: half of them to the right and half to the left, at even heights.

    >>> [(round(x), round(y)) for x, y in ring(3)]
    [(147, -85), (147, 85), (-170, 0)]
    """
    right = (count + 1) // 2
    return [*_side(right, 1.0), *reversed(_side(count - right, -1.0))]


def _side(count: int, sign: float) -> list[Point]:
    heights = [(2 * place + 1 - count) / count for place in range(count)]
    return [(sign * _RADIUS * math.sqrt(1 - height * height), _RADIUS * height) for height in heights]


def _length(name: str, near: dict[str, list[str]], where: dict[str, Point]) -> float:
    return sum(math.dist(where[name], where[other]) for other in near[name])


# -- pieces ------------------------------------------------------------------------------------------------------------


def _opening(width: float, height: float) -> Iterator[str]:
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}"'
        f' height="{height:.0f}" font-family="DejaVu Sans, Verdana, sans-serif" font-size="11">'
    )
    yield "<title>Debian packages that require each other in circles</title>"
    yield "<style>"
    yield "path { fill: none; stroke-width: 1.1; stroke-opacity: 0.75 }"
    yield "text { fill: #222 } .name { font-size: 15px; font-weight: bold } .note { fill: #666 }"
    yield ".name, .note { text-anchor: middle } .left { text-anchor: end } circle { fill: #b03a2e }"
    yield from (f".{kind} {{ stroke: {colour} }}" for kind, colour in COLOURS.items())
    yield "</style>"
    yield "<defs>"
    for kind, colour in COLOURS.items():
        yield (
            f'<marker id="{kind}" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8"'
            f' markerUnits="userSpaceOnUse" orient="auto"><polygon points="0,1 8,4 0,7" fill="{colour}"/></marker>'
        )
    yield "</defs>"
    yield '<rect width="100%" height="100%" fill="white"/>'


def _legend(width: float, kinds: Sequence[str]) -> Iterator[str]:
    x = width / 2 - 57.5 * len(kinds)
    for kind in kinds:
        yield f'<path stroke="{COLOURS[kind]}" marker-end="url(#{kind})" d="M{x:.1f} 24h30"/>'
        yield f'<text x="{x + 36:.1f}" y="28">{kind}</text>'
        x += 115
    note = "An arrow leads to what is required; the more of its circle require a package, the larger its dot."
    yield f'<text class="note" x="{width / 2:.1f}" y="46">{note}</text>'


def _arrow(start: Point, end: Point, kind: str) -> str:
    """Return an arrow that bends towards the middle, and to its right, so that the way back is another curve."""
    (x, y), (to_x, to_y) = start, end
    length = math.dist(start, end)
    middle_x = 0.3 * (x + to_x) - 0.09 * (to_y - y)
    middle_y = 0.3 * (y + to_y) + 0.09 * (to_x - x)
    gap = min(11.0, length / 4) / math.dist((middle_x, middle_y), end)
    to_x, to_y = to_x + (middle_x - to_x) * gap, to_y + (middle_y - to_y) * gap
    return (
        f'<path class="{kind}" marker-end="url(#{kind})" d="M{x:.1f} {y:.1f}Q{middle_x:.1f} {middle_y:.1f}'
        f' {to_x:.1f} {to_y:.1f}"/>'
    )


def _dot(package: Package, place: Point, most: int) -> Iterator[str]:
    x, y = place
    size = 4 + 5 * math.sqrt(package.requirers / max(most, 1))
    side = "left" if x < 0 else "right"
    start = x - size - 4 if x < 0 else x + size + 4
    described = f"{package.name}: {package.description}" if package.description else package.name
    yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size:.1f}"><title>{escape(described)}</title></circle>'
    yield f'<text class="{side}" x="{start:.1f}" y="{y + 4:.1f}">{escape(_label(package.name))}</text>'


def _label(name: str) -> str:
    return name if len(name) <= _LABEL else name[: _LABEL - 1] + "…"
