"""Every operator that keeps state, where several epochs are under way at once: outside of loops and in one, against an oracle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timely
from tests.operators.feeding import run, sizes
from timely import LoopTime, Product, TimestampError
from timely.dataflow import records_of
from timely.operators import all_reduce, reclock
from timely.operators.keyed.windows import sessions, tumbling, windows

TUTORIAL = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"

Given = list[tuple[Any, tuple[int, int]]]
"""What an operator gets: times, and pairs of a key and a value."""

pairs = st.tuples(st.integers(0, 2), st.integers(0, 3))
epochs = st.integers(0, 3)
seeds = st.integers(0, 10**6)
sends = st.lists(st.tuples(epochs, st.tuples(st.integers(0, 3), pairs)), max_size=8)


def timed(stream: Any) -> Any:
    """The records of a stream, each with its time."""

    def constructor(capability: Any, info: Any) -> Any:
        def logic(input: Any, output: Any) -> None:
            for cap, batch in input:
                output.session(cap).give_many((cap.time, record) for record in records_of(batch))

        return logic

    return stream.unary(timely.Pipeline, "timed", constructor)


def in_loop(operate: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Send each record ``(rounds, pair)`` round so often, from worker to worker; ``operate`` gets it in every other round."""

    def build(stream: Any) -> Any:
        with stream.scope.iterative() as loop:
            back, again = loop.feedback()
            now = stream.enter(loop).concat(again)
            left = now.filter(lambda record: record[0] > 0).map(lambda record: (record[0] - 1, record[1]))
            left.exchange(lambda record: record[0] + record[1][1]).connect_loop(back)
            return timed(operate(now.filter(is_given).map(lambda record: record[1]))).leave()

    return build


def is_given(record: tuple[int, tuple[int, int]]) -> bool:
    left, pair = record
    return (left + sum(pair)) % 2 == 0


def outside(operate: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda stream: timed(operate(stream.map(lambda record: record[1])))


def by_time(pairs: Given) -> dict[Any, list[tuple[int, int]]]:
    groups: dict[Any, list[tuple[int, int]]] = {}
    for time, pair in pairs:
        groups.setdefault(time, []).append(pair)
    return groups


def each_time(answer: Callable[[list[tuple[int, int]]], Any]) -> Callable[[Given, int], Counter[Any]]:
    """The oracle of an operator that answers for each time by itself."""
    return lambda pairs, peers: Counter((time, record) for time, some in by_time(pairs).items() for record in answer(some))


def by_key(records: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(key, sum(v for k, v in records if k == key)) for key in {k for k, _ in records}]


def lub(one: Any, two: Any) -> Any:
    return Product(*map(max, one, two)) if isinstance(one, Product) else max(one, two)


def joined(pairs: Given, peers: int) -> Counter[Any]:
    return Counter((lub(s, t), (j, (v, w))) for (s, (j, v)), (t, (k, w)) in product(pairs, pairs) if j == k)


def later(pair: tuple[int, int], time: Any) -> Any:
    return Product(time.outer + pair[0], time.inner + pair[1]) if isinstance(time, Product) else time + pair[1]


def at_ticks(pairs: Given, peers: int) -> Counter[Any]:
    """A record goes to the first tick at or after it, epochs before rounds."""
    ticks = sorted({time for time, (_, value) in pairs if not value}, key=tuple_of)
    return Counter((next((tick for tick in ticks if time <= tick), time), pair) for time, pair in pairs)


def tuple_of(time: Any) -> tuple[int, ...]:
    return (*time,) if isinstance(time, Product) else (time,)


def ending(end: int, time: Any) -> Any:
    return Product(end, time.inner) if isinstance(time, Product) else end


def in_windows(pairs: Given, peers: int) -> Counter[Any]:
    groups: dict[Any, list[Any]] = {}
    late: Counter[Any] = Counter()
    for time, (key, value) in pairs:
        [window] = tumbling(2)(value)
        end = ending(window.end, time)
        if time < end:
            groups.setdefault((end, key), []).append(value)
        else:
            late[time, (window.start, key, value)] += 1
    return late + Counter((end, (key, tuple(sorted(values)))) for (end, key), values in groups.items())


def windowed(stream: Any) -> Any:
    complete, late = windows(stream, tumbling(2), at=lambda pair: pair[1], key=lambda pair: pair[0], due=ending)
    shown = complete.map(lambda result: (result[0], tuple(sorted(value for _, value in result[2]))))
    return shown.concat(late.map(lambda missed: (missed[0].start, *missed[1])))


def numbered(key: int, value: int, seen: int | None) -> tuple[int, list[tuple[int, int]]]:
    seen = (seen or 0) + 1
    return seen, [(key, seen)]


def in_turn(pairs: Given, peers: int) -> Counter[Any]:
    """A state machine that counts goes through the epochs one after the other, and through the rounds of each."""
    seen: Counter[int] = Counter()
    counts: Counter[Any] = Counter()
    for time, (key, _) in sorted(pairs, key=lambda one: tuple_of(one[0])):
        seen[key] += 1
        counts[time, (key, seen[key])] += 1
    return counts


class Least(timely.Vertex[Any]):
    """The least value of each key at each time."""

    def __init__(self) -> None:
        self.least: dict[Any, dict[int, int]] = {}

    def on_recv(self, port: int, batch: Any, time: Any) -> None:
        self.notify_at(time)
        for key, value in batch:
            known = self.least.setdefault(time, {})
            known[key] = min(value, known.get(key, value))

    def on_notify(self, time: Any) -> None:
        self.send_by(0, list(self.least.pop(time).items()), time)


def grouped(stream: Any) -> Any:
    batches = stream.map_batch(lambda some: pa.record_batch({"k": [k for k, _ in some], "v": [v for _, v in some]}))
    return batches.group_by("k", total=("v", "sum")).map_batch(lambda batch: list(map(tuple, records_of(batch))))


def least_by_key(some: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(key, min(v for k, v in some if k == key)) for key in {k for k, _ in some}]


def together(stream: Any) -> Any:
    return stream.exchange(lambda pair: 0)


Oracle = Callable[[Given, int], Counter[Any]]

OPERATORS: dict[str, tuple[Callable[[Any], Any], Oracle]] = {
    "accumulate": (lambda s: together(s).accumulate(0, lambda n, pair: n + pair[1]), each_time(lambda p: [sum(v for _, v in p)])),
    "aggregate": (
        lambda s: s.aggregate(lambda k, v, total: (total or 0) + v, lambda k, total: (k, total)),
        each_time(by_key),
    ),
    "all_reduce": (
        lambda s: s.map(lambda pair: pair[1]).apply(all_reduce, int.__add__),
        lambda given, peers: Counter((t, sum(v for _, v in some)) for t, some in by_time(given).items() for _ in range(peers)),
    ),
    "count": (lambda s: together(s).count(), each_time(lambda some: [len(some)])),
    "delay": (lambda s: s.delay(later), lambda given, peers: Counter((later(pair, time), pair) for time, pair in given)),
    "delay_batch": (
        lambda s: s.delay_batch(lambda time: later((1, 2), time)),
        lambda given, peers: Counter((later((1, 2), time), pair) for time, pair in given),
    ),
    "distinct": (lambda s: s.distinct(), each_time(set)),
    "group_by": (grouped, each_time(by_key)),
    "join": (lambda s: s.join(s), joined),
    "reclock": (lambda s: s.apply(reclock, s.filter(lambda pair: not pair[1]).broadcast()), at_ticks),
    "reduce_by_key": (lambda s: s.reduce_by_key(int.__add__), each_time(by_key)),
    "state_machine": (lambda s: s.state_machine(numbered), in_turn),
    "value_counts": (lambda s: s.value_counts(), each_time(lambda some: list(Counter(some).items()))),
    "vertex": (lambda s: s.vertex(Least, pact=timely.Exchange(lambda pair: pair[0])), each_time(least_by_key)),
    "windows": (windowed, in_windows),
}


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("place", [outside, in_loop])
@settings(max_examples=settings().max_examples // 2)
@given(sends, sizes, seeds)
def test_every_operator_with_state_is_right_while_epochs_are_in_flight(
    name: str, place: Any, sent: list[Any], workers: int, seed: int
) -> None:
    operate, oracle = OPERATORS[name]
    [outputs] = run(place(operate), sent, workers=workers, seed=seed)
    came: Given = [(epoch, pair) for epoch, (_, pair) in sent]
    if place is in_loop:
        came = [
            (Product(epoch, round), pair)
            for epoch, (rounds, pair) in sent
            for round in range(rounds + 1)
            if is_given((rounds - round, pair))
        ]
    assert Counter(record for _, record in outputs.elements()) == oracle(came, workers)


@given(st.lists(st.tuples(epochs, st.lists(st.integers(0, 2), max_size=2).map(tuple)), max_size=8), sizes, seeds)
def test_a_state_machine_goes_by_epochs_and_counters_of_a_loop_time(sent: list[Any], workers: int, seed: int) -> None:
    times = [LoopTime(epoch, counters) for epoch, counters in sent]
    given_ = [(time, (0, None)) for time in times]
    [outputs] = run(lambda s: s.state_machine(numbered), given_, time=LoopTime, workers=workers, seed=seed)
    ordered = sorted(times, key=LoopTime.sort_key)
    assert outputs == Counter((time, (0, n)) for n, time in enumerate(ordered, 1))


def least_distances(edges: list[tuple[int, int]]) -> dict[int, int]:
    result, reached = {0: 0}, [0]
    for node in reached:
        for end in (end for start, end in edges if start == node and end not in result):
            result[end] = result[node] + 1
            reached.append(end)
    return result


@given(st.lists(st.tuples(epochs, st.tuples(st.integers(0, 5), st.integers(0, 5))), max_size=12), sizes, seeds)
def test_the_loop_of_the_tutorial_while_epochs_are_in_flight(sent: list[Any], workers: int, seed: int) -> None:
    [page] = [block for block in TUTORIAL.read_text().split("```python\n") if "def reach(" in block]
    names: dict[str, Any] = {}
    exec(page.partition("```")[0], names)
    [outputs] = run(names["reach"], sent, [(0, (0, 0))], workers=workers, seed=seed)
    expected: Counter[Any] = Counter()
    before: dict[int, int] = {}
    for epoch in range(4):
        now = least_distances([edge for time, edge in sent if time <= epoch])
        expected.update((epoch, (node, distance)) for node, distance in now.items() if before.get(node) != distance)
        before = now
    assert outputs == expected


@attrs.frozen
class Advance:
    """The path that goes on by so many elements."""

    more: frozenset[int] = frozenset()

    def results_in(self, time: Any) -> Any:
        return type(time)(time.elements | self.more)

    def followed_by(self, other: Advance) -> Advance:
        return Advance(self.more | other.more)

    def __le__(self, other: Advance) -> bool:
        return self.more <= other.more

    def __lt__(self, other: Advance) -> bool:
        return self.more < other.more


@attrs.frozen
class Elements:
    """Sets, ordered by inclusion, with no order beyond that."""

    elements: frozenset[int] = frozenset()

    @classmethod
    def minimum(cls) -> Elements:
        return cls()

    @classmethod
    def identity(cls) -> Advance:
        return Advance()

    def __le__(self, other: Elements) -> bool:
        return self.elements <= other.elements

    def __lt__(self, other: Elements) -> bool:
        return self.elements < other.elements


class Sizes(Elements):
    """The same, and a key that does not tell all of them apart."""

    def sort_key(self) -> int:
        return len(self.elements)


@pytest.mark.parametrize("name", ["state_machine", "reclock"])
@pytest.mark.parametrize("time", [Elements, Product[int, Elements]])
def test_times_without_a_total_order_are_refused_when_it_is_built(name: str, time: Any) -> None:
    with timely.Worker().dataflow(time) as scope:
        _, stream = scope.new_unordered_input()
        with pytest.raises(TimestampError, match=rf"'{name}' .*Elements.*sort_key\(\).*is_total\(\)"):
            stream.state_machine(numbered) if name == "state_machine" else reclock(stream, stream)


def test_a_total_order_need_not_have_keys() -> None:
    class Total(Elements):
        @staticmethod
        def is_total() -> bool:
            return True

    times = [Product(n, Total(frozenset(range(m)))) for n, m in ((1, 0), (0, 2), (0, 1))]
    [outputs] = run(lambda s: s.state_machine(numbered), [(time, (0, 0)) for time in times], time=Product[int, Total])
    assert outputs == Counter((time, (0, n)) for n, time in zip((3, 2, 1), times, strict=True))


def test_two_times_with_one_key_are_an_error() -> None:
    times = [Sizes(frozenset(some)) for some in ([1], [2])]
    with pytest.raises(timely.OperatorError, match=r"'state_machine · numbered' .*sort_key\(\)") as raised:
        run(lambda s: s.state_machine(numbered), [(time, (0, 0)) for time in times], time=Sizes)
    assert isinstance(raised.value.__cause__, TimestampError)


def test_sessions_in_a_loop_are_refused_when_they_are_built() -> None:
    with timely.Worker().dataflow() as scope, scope.iterative() as loop:
        stream = scope.to_stream([1]).enter(loop)
        with pytest.raises(TimestampError, match="sessions need times of which every two can be compared"):
            sessions(stream, 10, at=lambda event: event)
