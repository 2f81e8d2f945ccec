"""Input handles: what is sent between steps keeps its time and its place, and no frontier passes it before it is there."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

import timely
from timely import operators

DEEDS = st.sampled_from(["send", "send", "batch", "later", "later", "advance", "stay", "flush", "step", "feed", "drop"])


class Fed:
    """A dataflow that reads what a handle sends: what it must get, and what it has got."""

    def __init__(self, scope: timely.ScopeBuilder[int], stream: timely.Stream[int, int]) -> None:
        self.scope = scope
        self.expected: list[tuple[int, int]] = []
        self.later: list[tuple[int, int]] = []  # of these the order is unspecified
        self._seen = stream.capture()
        self._probe = stream.probe()

    def check(self) -> None:
        """What has come is the beginning of what was sent, and what is missing may still come."""
        received = self.received()
        later = [sent for sent in received if sent in self.later]
        in_order = [sent for sent in received if sent not in self.later]
        assert in_order == self.expected[: len(in_order)]
        assert len(set(later)) == len(later)
        missing = self.expected[len(in_order) :] + [sent for sent in self.later if sent not in later]
        assert all(self._probe.less_equal(time) for time, _ in missing)

    def received(self) -> list[tuple[int, int]]:
        """The records that have come, with their times."""
        return [(time, record) for time, batch in self._seen.messages for record in batch]


@given(st.lists(DEEDS, max_size=25))
def test_each_dataflow_gets_what_is_sent_while_it_is_fed(deeds: list[str]) -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        fed = [Fed(scope, stream)]
    dropped: list[Fed] = []
    for number, deed in enumerate(deeds):
        sent: list[int] = []
        match deed:
            case "send":
                sent = [number]
                handle.send(number)
            case "batch":
                sent = [number, -number]
                handle.send_batch(sent)
            case "later":
                handle.send_at(handle.time + 1 + number % 3, number)
                for each in fed:
                    each.later.append((handle.time + 1 + number % 3, number))
            case "advance" | "stay":
                handle.advance_to(handle.time + (deed == "advance"))
            case "flush":
                handle.flush()
            case "step":
                worker.step()
            case "feed":
                with worker.dataflow(int) as scope:
                    fed.append(Fed(scope, scope.input_from(handle)))
            case "drop" if fed:
                dropped.append(fed.pop(0))
                worker.drop_dataflow(dropped[-1].scope)
        for each in fed:
            each.expected += [(handle.time, record) for record in sent]
            each.check()
    handle.close()
    worker.run()
    for each in fed:
        each.check()
        assert len(each.received()) == len(each.expected) + len(each.later)
    assert all(set(each.received()) <= {*each.expected, *each.later} for each in dropped)


def test_a_record_of_a_later_time_holds_nothing_up() -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        received, probe = stream.capture(), stream.probe()
    handle.send_at(5, "later")
    handle.send_at(0, "now")
    handle.advance_to(3)
    while not worker.idle:
        worker.step()
    assert not probe.less_than(3)
    with pytest.raises(timely.TimestampError, match="is at 3 and cannot send at 2, which is not at or after it"):
        handle.send_at(2, "early")
    handle.close()
    with pytest.raises(timely.CapabilityError, match="send_at: input .* was closed at 3"):
        handle.send_at(9, "late")
    worker.run()
    assert sorted(received.messages) == [(0, ["now"]), (5, ["later"])]


def test_what_a_slow_generator_has_yielded_is_there_before_it_yields_more() -> None:
    come: list[int] = []
    there: list[list[int]] = []

    def slowly() -> Iterator[int]:
        for number in range(4):
            there.append(list(come))
            time.sleep(2 * operators.program_inputs.PROMPT)  # what is slow is the program, whoever waits
            yield number

    timely.example(lambda scope: scope.to_stream(slowly()).inspect(come.append))
    assert there == [[], [0], [0, 1], [0, 1, 2]]


def test_what_a_quick_generator_yields_comes_in_few_batches() -> None:
    def sizes(scope: timely.ScopeBuilder[int]) -> timely.Stream[int, int]:
        return scope.to_stream(iter(range(10_000))).map_batch(lambda batch: [len(batch)])

    [(_, outputs)] = timely.example(sizes)
    assert sum(outputs) == 10_000
    assert max(outputs) <= 4096
