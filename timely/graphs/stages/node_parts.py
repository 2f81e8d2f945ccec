"""``NodeParts``: nodes in sixteen parts, so that the dictionary of one part fits where that of all nodes does not.

Without a memory budget there is one part.

The invariant: equal nodes are in one part and have equal keys there, different nodes of a part different ones. Integers, dates
and times have integers for keys that lie as close together as they do, so that a dictionary of a part is an array too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timely.graphs.stages.edge_input import node_routes
from timely.graphs.structures.arrays import Column
from timely.graphs.structures.dictionary import as_integers, from_integers

PARTS: Final = 16
_BITS: Final = 4
_BLOCK: Final = 10
"""So many last bits of an integer stay in its key, the next ``_BITS`` are its part."""

Part = npt.NDArray[np.uint8]


class NodeParts:
    """The parts of nodes of a type.

    >>> parts = NodeParts(pa.int64(), PARTS)
    >>> which, keys = parts.split(None, [pa.array([5, 1029, 20_000]), pa.array([5])], "src")
    >>> which.tolist(), [some.to_pylist() for (some,) in filter(None, keys)], parts.restore(3, pa.array([1568])).to_pylist()
    ([0, 1, 3, 0], [[5, 5], [5], [1568]], [20000])
    """

    def __init__(self, kind: pa.DataType, count: int) -> None:
        self._kind = kind
        self._count = count
        self._integers = count > 1 and as_integers(pa.array([], kind)) is not None

    def split(self, info: Any, columns: Sequence[pa.Array], src: str) -> tuple[Part | None, list[list[pa.Array]]]:
        """Return the part of each node, ``None`` where there is one part, and for each part its keys, in arrays: one, or none.

        ``SchemaError`` for a type that cannot be routed.
        """
        if self._count == 1:
            return None, [list(columns)]
        nodes = pa.concat_arrays(columns)
        integers = as_integers(nodes) if self._integers else None
        if integers is not None:
            which = ((integers >> _BLOCK) & (PARTS - 1)).astype(np.uint8)
            nodes = pa.array(((integers >> (_BLOCK + _BITS)) << _BLOCK) | (integers & ((1 << _BLOCK) - 1)))
        else:
            encoded = nodes.dictionary_encode()
            routes = node_routes(info, encoded.dictionary, src)
            which = (routes // info.peers % PARTS).astype(np.uint8).take(encoded.indices.to_numpy())
        return which, [[nodes.take(pa.array(places))] if len(places) else [] for places in by_part(which)]

    def restore(self, part: int, keys: pa.Array) -> pa.Array:
        """Return the nodes of a part that have these keys."""
        if not self._integers:
            return keys
        integers: Column = keys.to_numpy()
        high = (((integers >> _BLOCK) << _BITS) | part) << _BLOCK
        return from_integers(high | (integers & ((1 << _BLOCK) - 1)), self._kind)


def by_part(which: Part) -> list[Column]:
    """Return the places of each part, in ascending order."""
    order = np.argsort(which, kind="stable")
    return np.split(order, np.cumsum(np.bincount(which, minlength=PARTS))[:-1])
