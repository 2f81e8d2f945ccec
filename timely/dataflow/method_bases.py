"""The bases of ``Stream`` and ``ScopeBuilder`` that receive the operators as methods, from ``timely.methods`` above this layer.

Type checkers read ``method_bases.pyi`` instead, since the types of streams and operators refer to each other.
"""

from __future__ import annotations


class StreamBase:
    """The operators of a stream."""

    __slots__ = ()


class ScopeBase:
    """The operators that begin in a scope."""
