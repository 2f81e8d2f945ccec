"""What is taken from an queue, and when, against a set that is gone through number by number."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from timely.progress import ActivationQueue

SIZE = 6
Actions = list[tuple[str, int]]
numbers = st.integers(0, SIZE - 1)
actions = st.lists(st.tuples(st.sampled_from(["add", "remove"]), numbers), max_size=4)


def queue_of(size: int) -> ActivationQueue:
    queue = ActivationQueue()
    assert [queue.grow() for _ in range(size)] == list(range(size))
    return queue


@given(st.lists(st.tuples(actions, st.lists(actions, max_size=SIZE)), max_size=5))
@example([([("add", 1), ("add", 5), ("add", 3), ("remove", 1)], [])])  # the first of a heap goes
def test_a_pass_takes_what_waits_in_order_each_once(passes: list[tuple[Actions, list[Actions]]]) -> None:
    """``before`` is done before a pass, ``within[i]`` after the i-th number of the pass was taken."""
    queue, waiting = queue_of(SIZE), set[int]()

    def do(what: Actions) -> None:
        for action, number in what:
            if action == "add":
                queue.add(number)
                waiting.add(number)
            else:
                queue.remove(number)
                waiting.discard(number)
        assert queue.waits == [number in waiting for number in range(SIZE)]

    for before, within in passes:
        do(before)
        at = -1
        for what in [*within, *[[]] * SIZE]:
            still = sorted(number for number in waiting if number > at)
            assert bool(queue.ready) == bool(still)
            if still:
                at = queue.take()
                assert at == still[0]
                waiting.remove(at)
                do(what)
        assert queue.end_pass() == bool(waiting)
        assert sorted(queue.ready) == sorted(waiting)
