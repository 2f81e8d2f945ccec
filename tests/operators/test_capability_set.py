"""``CapabilitySet``: a frontier of capabilities, against ``Antichain``; whatever fails changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import timely
from timely import Antichain, Capability, CapabilityError, CapabilitySet, Product, TimestampError

PAIRS: Any = Product[int, int]
times = st.builds(Product, st.integers(0, 4), st.integers(0, 4))


def in_operator(deed: Callable[[Capability[Any], timely.ProbeHandle[Any], Callable[[], None]], object]) -> None:
    """Run ``deed(capability, probe, settle)``: the probe shows what is held once ``settle()`` was called."""
    worker = timely.Worker()
    with worker.dataflow(PAIRS) as scope:
        (_, capability), stream = scope.new_unordered_input()
        probe = stream.probe()

    def settle() -> None:
        for _ in range(3):
            worker.step()

    deed(capability, probe, settle)
    capability.drop()
    worker.run()


@given(st.lists(times), times)
def test_insert_keeps_the_minimal_ones(inserted: list[Any], asked: Any) -> None:
    def deed(capability: Capability[Any], probe: Any, settle: Callable[[], None]) -> None:
        held: CapabilitySet[Any] = CapabilitySet()
        expected: Antichain[Any] = Antichain()
        for time in inserted:
            assert held.insert(capability.delayed(time)) == expected.insert(time)
        capability.drop()
        settle()
        assert held.frontier == expected == probe.frontier()
        assert len(held) == len(expected)
        assert {one.time for one in held} == set(expected)
        if expected.less_equal(asked):
            assert held.delayed(asked).time == asked
        else:
            with pytest.raises(CapabilityError, match="cannot delay"):
                held.delayed(asked)
        assert held.frontier == expected

    in_operator(deed)


@given(st.lists(times, min_size=1, max_size=4), st.lists(times, max_size=4))
def test_downgrade_is_all_or_nothing(start: list[Any], frontier: list[Any]) -> None:
    def deed(capability: Capability[Any], probe: Any, settle: Callable[[], None]) -> None:
        held = CapabilitySet([capability.delayed(time) for time in start])
        capability.drop()
        before = held.frontier
        if all(before.less_equal(time) for time in Antichain(frontier)):
            held.downgrade(frontier)
            expected = Antichain(frontier)
        else:
            with pytest.raises(CapabilityError, match="cannot downgrade"):
                held.downgrade(frontier)
            expected = before
        settle()
        assert held.frontier == expected == probe.frontier()
        held.drop()
        settle()
        assert not held
        assert probe.done()

    in_operator(deed)


def test_inserting_the_same_one_twice_does_nothing_more() -> None:
    def deed(capability: Capability[Any], probe: Any, settle: Callable[[], None]) -> None:
        held = CapabilitySet([capability])
        assert not held.insert(capability)
        assert capability.held
        settle()
        assert probe.frontier() == held.frontier == Antichain([Product(0, 0)])

    in_operator(deed)


def test_what_is_dropped_or_belongs_elsewhere_is_refused() -> None:
    def deed(capability: Capability[Any], probe: Any, settle: Callable[[], None]) -> None:
        with timely.Worker().dataflow(PAIRS) as scope:
            (_, other), _ = timely.operators.new_unordered_input(scope, "another")
        held = CapabilitySet([capability.copy()])
        with pytest.raises(CapabilityError, match=r"'unordered_input'.*belongs to output 0 of operator 'another'"):
            held.insert(other)
        assert other.held
        other.drop()
        with pytest.raises(CapabilityError, match="was dropped before it was put into a set"):
            held.insert(other)
        held.downgrade([])
        with pytest.raises(CapabilityError, match=r"empty set of capabilities to \(0, 0\)"):
            held.delayed(Product(0, 0))
        with pytest.raises(CapabilityError, match="empty set"):
            held.downgrade([Product(0, 0)])

    in_operator(deed)


@pytest.mark.parametrize("wrong", ["soon", 1.5, True, None, (1, 1)])
def test_what_is_no_time_is_refused_by_every_capability(wrong: Any) -> None:
    """Also where it could be compared with a time, and would be later."""
    caught: list[str] = []

    def constructor(capability: Capability[int], info: timely.OperatorInfo) -> Callable[..., object]:
        def logic(input: Any, output: Any) -> None:
            for cap, _ in input:
                for deed in (cap.delayed, cap.retain().delayed, cap.retain().downgrade, CapabilitySet([cap.retain()]).delayed):
                    try:
                        deed(wrong)
                    except timely.TimestampError as error:
                        caught.append(str(error))

        return logic

    timely.example(lambda scope: scope.to_stream([1]).unary(timely.Pipeline, "late", constructor))
    assert len(caught) == 4
    for message in caught:
        assert "put 0 of operator 'late' (/example/late#1): " in message
        assert "is not a time of type int" in message


def test_batches_later_than_their_session() -> None:
    """A session sends at and after its time."""

    def constructor(capability: Any, info: Any) -> Any:
        held = [capability.delayed(3)]
        capability.drop()

        def logic(input: Any, output: Any) -> None:
            for arrived, _ in input:
                session = output.session(held[0])
                with pytest.raises(CapabilityError, match=r"at 3 does not permit to send at 2: that needs a capability, at or"):
                    session.give_batch(["two"], 2)
                with pytest.raises(TimestampError):
                    session.give_batch(["four"], "4")
                session.give("three")
                session.give_batch(["four"], 4)
                output.session(arrived).give_batch(["one"], 1)
                held.pop().drop()

        return logic

    outputs = timely.example(lambda scope: scope.to_stream([1]).unary(timely.Pipeline, "later", constructor))
    assert outputs == [(1, ["one"]), (3, ["three"]), (4, ["four"])]
