"""Kits for every type of times that is shipped or shown, and for nestings of such; what random tests of times draw from."""

from __future__ import annotations

import attrs
from hypothesis import strategies as st

from examples.timestamps.bounded_loop import LAST
from examples.timestamps.bounded_out_of_orderness import END, Seconds
from examples.timestamps.lexicographic_pair import LogTime
from examples.timestamps.sets import Passed
from timely import LoopTime, Product, Step, Unit
from timely.testing import TimeKit, time_kit


@attrs.frozen
class Quarters:
    """A path on which so many quarters of an hour pass."""

    by: int

    def results_in(self, time: Quarter, /) -> Quarter | None:
        return attrs.evolve(time, n=time.n + self.by)

    def followed_by(self, other: Quarters, /) -> Quarters | None:
        return Quarters(self.by + other.by)

    def __le__(self, other: Quarters, /) -> bool:
        return self.by <= other.by


@attrs.frozen(order=True)
class Quarter:
    """A quarter of an hour: a type that refines whole numbers, of hours, by methods of its own."""

    n: int

    @classmethod
    def minimum(cls) -> Quarter:
        return cls(0)

    @classmethod
    def identity(cls) -> Quarters:
        return Quarters(0)

    @classmethod
    def to_inner(cls, hour: int) -> Quarter:
        return cls(4 * hour)

    def to_outer(self) -> int:
        return self.n // 4

    @classmethod
    def summarize(cls, summary: Quarters) -> Step:
        return Step(summary.by // 4)


SMALL = st.integers(0, 3)
INT, LOOP = time_kit(int), time_kit(LoopTime)
QUARTERS = TimeKit(
    Quarter, st.builds(Quarter, st.integers(0, 9)), st.builds(Quarters, st.integers(1, 5)), st.builds(Quarters, SMALL)
)
LOG = TimeKit(
    LogTime,
    st.builds(LogTime, SMALL, SMALL),
    st.builds(LogTime, SMALL, st.integers(1, 2)) | st.builds(LogTime, st.integers(1, 2), SMALL),
    st.builds(LogTime, SMALL, SMALL),
)
SECONDS = TimeKit(
    Seconds,
    (st.integers(0, 5) | st.integers(END // 2 - 2, END // 2 + 2) | st.integers(END - 3, END - 1)).map(Seconds),
    (st.integers(1, 3) | st.just(END // 2)).map(Seconds),
    (st.integers(0, 3) | st.just(END // 2)).map(Seconds),
)
SETS = TimeKit(
    Passed, st.frozensets(st.sampled_from("abc")).map(Passed), st.nothing(), st.frozensets(st.sampled_from("abc")).map(Passed)
)
BOUNDED = INT.product(
    TimeKit(
        int,
        st.integers(0, LAST),
        st.builds(Step, st.integers(1, 3), st.just(LAST)),
        st.builds(Step, SMALL, st.just(LAST)),
    )
)

KITS: dict[str, TimeKit] = {
    "int": INT,
    "unit": time_kit(Unit),
    "loop_time_in_loop_time": time_kit(Product[LoopTime, LoopTime]),
    "loop_in_loop_time": time_kit(Product[Product[LoopTime, int], int]),
    "quarters": QUARTERS,
    "quarters_in_hours": attrs.evolve(INT, inside=(attrs.evolve(QUARTERS, inside=(QUARTERS.product(LOOP),)),)),
    "anything_in_unit": attrs.evolve(time_kit(Unit), inside=(INT, LOOP, LOG, SETS)),
    # the examples, by their names
    "bounded_loop": BOUNDED,
    "bounded_out_of_orderness": SECONDS,
    "lexicographic_pair": LOG,
    "naiad_loop_time": LOOP,
    "sets": SETS,
    "sets_in_a_loop": INT.product(SETS),
    "system_and_event_time": time_kit(Product[int, int]),
}
