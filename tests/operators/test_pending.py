"""``Pending`` against a plain dictionary, for total and partial orders, and that many times cost no more than they are.

White box: operators hide in which order, and how often, they look at what is pending; its cost is counted in comparisons.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import timely
from tests.operators.test_join import Set
from timely import Product
from timely.operators.keyed.windows import sessions, tumbling, windows
from timely.operators.pending import Pending
from timely.progress import Antichain

KINDS: list[st.SearchStrategy[Any]] = [
    st.integers(0, 9),
    st.builds(Product, st.integers(0, 3), st.integers(0, 3)),
    st.frozensets(st.sampled_from("abc")).map(Set),
]


@pytest.mark.parametrize("times", KINDS)
@given(st.data())
def test_pending_is_a_dictionary_emptied_in_order(times: st.SearchStrategy[Any], data: st.DataObject) -> None:
    pending: Pending[Any, list[int]] = Pending()
    plain: dict[Any, list[int]] = {}
    for number in range(data.draw(st.integers(0, 4))):
        for time in data.draw(st.lists(times, max_size=6)):
            pending.at(time, list).append(number)
            plain.setdefault(time, []).append(number)
        assert set(pending) == set(plain)
        assert set(pending.minimum()) == set(Antichain(plain))
        frontier = Antichain(data.draw(st.lists(times, max_size=2)))
        expected = {time: plain.pop(time) for time in list(plain) if not frontier.less_equal(time)}
        assert pending.has_due(lambda time: not frontier.less_equal(time)) == bool(expected)  # noqa: B023  # called at once
        taken = list(pending.take(lambda time: not frontier.less_equal(time)))  # noqa: B023  # called at once
        assert dict(taken) == expected
        assert len(taken) == len(expected)
        for i, (later, _) in enumerate(taken):
            assert not any(later < earlier for earlier, _ in taken[:i])
    assert len(pending) == len(plain)


class Compared(int):
    """Times that count how often they are compared."""

    comparisons = 0

    @classmethod
    def minimum(cls) -> Compared:
        return Compared(0)

    identity = minimum

    @classmethod
    def is_total(cls) -> bool:
        return True

    def results_in(self, time: Compared, /) -> Compared | None:
        return Compared(self + time)

    followed_by = results_in

    def __le__(self, other: int, /) -> bool:
        Compared.comparisons += 1
        return int(self) <= int(other)

    def __lt__(self, other: int, /) -> bool:
        Compared.comparisons += 1
        return int(self) < int(other)


class Report(timely.Vertex[Any]):
    def on_recv(self, port: int, batch: Any, time: Any) -> None:
        self.notify_at(time)

    def on_notify(self, time: Any) -> None:
        self.send_by(0, [time], time)


BUILDS: dict[str, Any] = {
    "count": lambda stream: stream.count(),
    "aggregate": lambda stream: stream.aggregate(lambda k, v, state: v, lambda k, state: state),
    "reduce_by_key": lambda stream: stream.reduce_by_key(max),
    "state_machine": lambda stream: stream.state_machine(lambda k, v, state: (v, [v])),
    "distinct": lambda stream: stream.distinct(),
    "delay": lambda stream: stream.delay(lambda pair, time: Compared(time + 1)),
    "windows": lambda stream: windows(stream, tumbling(1), at=lambda pair: pair[0], due=lambda end, time: Compared(end))[0],
    "sessions": lambda stream: sessions(stream, 1, at=lambda pair: pair[0], key=lambda pair: pair[0], due=Compared)[0],
    "vertex": lambda stream: stream.vertex(Report),
}


@pytest.mark.parametrize("name", BUILDS)
def test_many_pending_times_cost_as_much_as_they_are(name: str) -> None:
    """Comparisons per time, when all times are pending at once and each is passed by itself, do not grow with their number."""

    def comparisons(size: int) -> float:
        worker = timely.Worker()
        with worker.dataflow(Compared) as scope:
            (handle, capability), stream = scope.new_unordered_input()
            seen = BUILDS[name](stream).capture()
        Compared.comparisons = 0
        for epoch in range(size):
            handle.session(capability.delayed(Compared(epoch))).give((epoch, epoch))
            worker.step()
        for epoch in range(size):
            capability.downgrade(Compared(epoch + 1))
            worker.step()
        capability.drop()
        worker.run()
        assert sum(len(batch) for _, batch in seen.messages) == size
        return Compared.comparisons / size

    assert comparisons(400) < 2 * comparisons(100)
