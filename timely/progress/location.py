"""Where in a graph a time can be: at an output or at an input of a node.

A *source* is an output of a node, a *target* an input: edges lead from sources to targets, and a pointstamp is a time
at one of the two. The invariant is that the two are never mistaken for each other: they are different types, never
equal, and not ordered against one another. A caller may name a node by any hashable value, use locations as keys, and
sort each kind by node and port where the names of nodes can be compared.
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
        return f"Source({self.node!r}, {self.port!r})"


@attrs.frozen(order=True, repr=False)
class Target:
    """Input ``port`` of ``node``, where messages wait to be consumed (Naiad section 2.3).

    >>> {Target("join", 0): "left", Target("join", 1): "right"}[Target("join", 1)]
    'right'
    """

    node: Any
    port: int

    def __repr__(self) -> str:
        return f"Target({self.node!r}, {self.port!r})"


Location: TypeAlias = Source | Target
