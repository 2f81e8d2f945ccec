"""The type variables of the operators' signatures: ``T`` is a time, ``D`` and ``E`` are records, ``K`` is a key."""

from __future__ import annotations

from typing import TypeVar

from timely.order import PartialOrder

T = TypeVar("T", bound=PartialOrder)
T2 = TypeVar("T2", bound=PartialOrder)
A = TypeVar("A")
B = TypeVar("B")
D = TypeVar("D")
E = TypeVar("E")
F = TypeVar("F")
K = TypeVar("K")
S = TypeVar("S")
V = TypeVar("V")
W = TypeVar("W")
