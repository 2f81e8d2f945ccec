"""A plot as SVG: curves over two logarithmic axes, with the name of each at its end. No dependencies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

import attrs

_WIDTH, _HEIGHT = 860, 480
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 230, 50, 50
_COLOURS = ("#0b5fa5", "#d1495b", "#2e933c", "#8b5fbf", "#c77700", "#4b5563")
_GAP = 16


@attrs.frozen
class Curve:
    """Points under a name; both coordinates are positive."""

    name: str
    points: Sequence[tuple[float, float]]


def plot(title: str, curves: Sequence[Curve]) -> str:
    """Return the picture of some curves.

    >>> plot("squares", [Curve("n²", [(1, 1), (10, 100)])]).startswith("<svg")
    True
    """
    points = [point for curve in curves for point in curve.points]
    xs, ys = _decades([x for x, _ in points], 2), _decades([y for _, y in points], 10)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="13">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="26" font-size="16">{escape(title)}</text>',
    ]
    for x in xs:
        at = _place(x, xs, _LEFT, _WIDTH - _RIGHT)
        parts.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}" stroke="#e5e7eb"/>')
        parts.append(f'<text x="{at:.1f}" y="{_HEIGHT - _BOTTOM + 20}" text-anchor="middle">{x:,.0f}</text>')
    for y in ys:
        at = _place(y, ys, _HEIGHT - _BOTTOM, _TOP)
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="#e5e7eb"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{_short(y)}</text>')
    ends = _spread([_place(curve.points[-1][1], ys, _HEIGHT - _BOTTOM, _TOP) for curve in curves])
    for number, (curve, end) in enumerate(zip(curves, ends, strict=True)):
        colour = _COLOURS[number % len(_COLOURS)]
        way = " ".join(
            f"{_place(x, xs, _LEFT, _WIDTH - _RIGHT):.1f},{_place(y, ys, _HEIGHT - _BOTTOM, _TOP):.1f}" for x, y in curve.points
        )
        parts.append(f'<polyline points="{way}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{_WIDTH - _RIGHT + 8}" y="{end + 4:.1f}" fill="{colour}">{escape(curve.name)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _decades(values: Sequence[float], base: int) -> list[float]:
    """Return the powers of a base from just below the least value to just above the greatest."""
    low, high = math.floor(math.log(min(values), base) + 1e-9), math.ceil(math.log(max(values), base) - 1e-9)
    return [float(base) ** power for power in range(low, max(high, low + 1) + 1)]


def _place(value: float, ticks: Sequence[float], start: float, end: float) -> float:
    share = (math.log(value) - math.log(ticks[0])) / (math.log(ticks[-1]) - math.log(ticks[0]))
    return start + share * (end - start)


def _spread(places: Sequence[float]) -> list[float]:
    """Return the places, moved downwards where they are too close to each other to be read."""
    found = list(places)
    last = -math.inf
    for number in sorted(range(len(places)), key=lambda number: places[number]):
        found[number] = last = max(places[number], last + _GAP)
    return found


def _short(value: float) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:g} {unit}"
    return f"{value:g}"
