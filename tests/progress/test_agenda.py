"""What is taken from an agenda, and when, against a set that is gone through number by number."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from timely.progress.activation_queue import ActivationQueue

SIZE = 6
Deeds = list[tuple[str, int]]
numbers = st.integers(0, SIZE - 1)
deeds = st.lists(st.tuples(st.sampled_from(["add", "remove"]), numbers), max_size=4)


def agenda_of(size: int) -> ActivationQueue:
    agenda = ActivationQueue()
    assert [agenda.grow() for _ in range(size)] == list(range(size))
    return agenda


@given(st.lists(st.tuples(deeds, st.lists(deeds, max_size=SIZE)), max_size=5))
@example([([("add", 1), ("add", 5), ("add", 3), ("remove", 1)], [])])  # the first of a heap goes
def test_a_pass_takes_what_waits_in_order_each_once(passes: list[tuple[Deeds, list[Deeds]]]) -> None:
    """``before`` is done before a pass, ``within[i]`` after the i-th number of the pass was taken."""
    agenda, waiting = agenda_of(SIZE), set[int]()

    def do(what: Deeds) -> None:
        for deed, number in what:
            if deed == "add":
                agenda.add(number)
                waiting.add(number)
            else:
                agenda.remove(number)
                waiting.discard(number)
        assert agenda.waits == [number in waiting for number in range(SIZE)]

    for before, within in passes:
        do(before)
        at = -1
        for what in [*within, *[[]] * SIZE]:
            still = sorted(number for number in waiting if number > at)
            assert bool(agenda.ready) == bool(still)
            if still:
                at = agenda.take()
                assert at == still[0]
                waiting.remove(at)
                do(what)
        assert agenda.end_pass() == bool(waiting)
        assert sorted(agenda.ready) == sorted(waiting)
