"""Priorities of nodes: other ones in each round, the same on each worker."""

from __future__ import annotations

import numpy as np

from timely.graphs.arrays import Column


def priority(nodes: Column, round: int) -> Column:
    """Return the priority of each node in a round: 31 random bits, then the node's number, which breaks ties.

    The bits are those of the SplitMix64 finalizer.
    """
    mixed = nodes.astype(np.uint64) + np.uint64((round + 1) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((mixed >> np.uint64(33)) << np.uint64(32)).astype(np.int64) | nodes


def node_of(priorities: Column) -> Column:
    """Return the node that each of ``priorities`` belongs to."""
    return priorities & 0xFFFFFFFF
