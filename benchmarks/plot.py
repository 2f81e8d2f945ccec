"""Plots as SVG by matplotlib (``pip install '.[plots]'``): curves over two logarithmic axes, named in a legend."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import attrs


@attrs.frozen
class Curve:
    """Points under a name; both coordinates are positive."""

    name: str
    points: Sequence[tuple[float, float]]


def plot(title: str, curves: Sequence[Curve]) -> str:
    """Return the picture of some curves; the same curves give the same picture."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter, ScalarFormatter

    figure: Any = Figure(figsize=(8.6, 4.8), layout="constrained")
    axes = figure.subplots()
    axes.set_title(title, loc="left")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.yaxis.set_major_formatter(EngFormatter())
    axes.minorticks_off()
    axes.grid(color="#e5e7eb")
    for curve in sorted(curves, key=lambda curve: -curve.points[-1][1]):
        axes.plot(*zip(*curve.points), label=curve.name)
    figure.legend(loc="outside right upper")  # in the order of the curves' ends
    written = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "timely", "svg.fonttype": "none"}):
        figure.savefig(written, format="svg", metadata={"Date": None})
    return written.getvalue()
