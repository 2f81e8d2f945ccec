"""Pseudo-random numbers of nodes: other ones in each round, the same on each worker."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timely.dataflow import route_column
from timely.errors import RoutingError
from timely.graphs.structures.arrays import Column

Hashes: TypeAlias = npt.NDArray[np.uint64]


def mixed(numbers: Hashes, step: int) -> Hashes:
    """Return pseudo-random numbers for numbers in a step: the SplitMix64 finalizer."""
    mixed = numbers + np.uint64(step * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def value_hashes(nodes: pa.Array) -> Hashes:
    """Return a number for the value of each node, the same on all workers."""
    try:
        return route_column(nodes).astype(np.uint64)
    except RoutingError:
        return route_column(nodes.cast(pa.string())).astype(np.uint64)


def priority(nodes: Column, round: int) -> Column:
    """Return the priority of each node in a round: 31 random bits, then the node's number, which breaks ties."""
    return ((mixed(nodes.astype(np.uint64), round + 1) >> np.uint64(33)) << np.uint64(32)).astype(np.int64) | nodes


def node_of(priorities: Column) -> Column:
    return priorities & 0xFFFFFFFF
