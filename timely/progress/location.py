"""Locations: where a time can be in a graph.

A *source* is an output of a node, a *target* an input. Edges lead from sources to targets. The two types never compare equal.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import attrs


@attrs.frozen(order=True, repr=False)
class Source:
    """Output ``port`` of ``node``, where messages and capabilities are produced (Naiad section 2.3).

    >>> Source(0, 1), Source(0, 1) == Source(0, 1), Source(0, 1) == Target(0, 1), Source(0, 1) < Source(1, 0)
    (Source(0, 1), True, False, True)
    """

    node: Any
    port: int

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.node!r}, {self.port!r})"


@attrs.frozen(order=True, repr=False)
class Target:
    """Input ``port`` of ``node``, where messages wait to be consumed (Naiad section 2.3).

    >>> {Target("join", 0): "left", Target("join", 1): "right"}[Target("join", 1)]
    'right'
    """

    node: Any
    port: int

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.node!r}, {self.port!r})"


Location: TypeAlias = Source | Target
