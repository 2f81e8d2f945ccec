"""The bases of classes that receive, from ``timely.differential.method_table``, the methods that need modules above theirs.

Type checkers read ``collection_bases.pyi`` instead, since the types refer to each other.
"""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class ArrangementBase(Generic[T, K, V]):
    """The operators of an arrangement."""

    __slots__ = ()


class CollectionBase(Generic[T, K]):
    """The loops of a collection."""

    __slots__ = ()


class TraceHandleBase(Generic[T, K, V]):
    """The imports of a trace."""

    __slots__ = ()
