"""The boundary of a scope as seen from inside: two nodes of its graph, and the numbers of locations.

A location inside has its dense number in the tracker, from ``FIRST_INSIDE`` on. An output or an input of the scope itself has a
number below that: only counts that cross the boundary carry one, between workers too.
"""

from __future__ import annotations

from typing import Final

import attrs

from timely.progress import Source, Target

INGRESS: Final = -1
"""The node whose outputs are the scope's inputs."""

EGRESS: Final = -2
"""The node whose inputs are the scope's outputs."""

FIRST_INSIDE: Final = 0


def output_number(port: int) -> int:
    return ~port


def output_port(number: int) -> int:
    """Return the output of the scope that has this number; from ``outputs`` on it is input ``output_port(number) - outputs``."""
    return ~number


def input_number(outputs: int, port: int) -> int:
    """Return the number of an input of a scope with so many outputs."""
    return ~(outputs + port)


@attrs.frozen
class Edge:
    """One edge of a scope's graph; ``local`` if its messages never leave the worker."""

    source: Source
    target: Target
    local: bool
