"""``gather``: what is worked on when its time is complete, as the frontiers say, or as is known before."""

from __future__ import annotations

from typing import Any

import timely
from timely import Stream
from timely.dataflow import OperatorInfo
from timely.graphs import gather


def pairs(numbers: Stream[int, int]) -> Stream[int, Any]:
    """Have two records of a time come out as soon as they are there."""

    def finish(info: OperatorInfo, time: int, collected: list[list[Any]]) -> list[Any]:
        return [[(time, sorted(record for batch in collected[0] for record in batch))]]

    def whole(info: OperatorInfo, time: int, collected: list[list[Any]]) -> bool:
        return sum(map(len, collected[0])) == 2

    (result,) = gather("pairs", [(numbers, timely.Pipeline)], 1, finish, whole=whole)
    return result


def test_what_is_whole_does_not_wait_for_the_frontier() -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        seen = pairs(stream).capture()
    handle.send_batch([2, 1])
    worker.step()
    assert seen.extract() == [(0, [(0, [1, 2])])]
    handle.advance_to(1)
    handle.send(3)
    worker.step()
    assert len(seen.extract()) == 1, "half of a pair came out though more may come"
    handle.close()
    worker.run()
    assert seen.extract() == [(0, [(0, [1, 2])]), (1, [(1, [3])])]


def test_what_can_be_done_meanwhile_is_done_once_and_only_where_something_is_missing() -> None:
    done: list[tuple[str, int, list[int]]] = []

    def note(what: str, time: int, collected: list[list[Any]]) -> None:
        done.append((what, time, [record for batch in collected[0] for record in batch]))

    def finish(info: OperatorInfo, time: int, collected: list[list[Any]]) -> list[Any]:
        note("finish", time, collected)
        return [[]]

    def meanwhile(info: OperatorInfo, time: int, collected: list[list[Any]]) -> None:
        note("meanwhile", time, collected)

    def whole(info: OperatorInfo, time: int, collected: list[list[Any]]) -> bool:
        return sum(map(len, collected[0])) == 3

    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        gather("late", [(stream, timely.Pipeline)], 1, finish, whole=whole, meanwhile=meanwhile)
    for record in (1, 2, 3):
        handle.send(record)
        worker.step()
    handle.advance_to(1)
    handle.send_batch([4, 5, 6])
    handle.close()
    worker.run()
    assert done == [("meanwhile", 0, [1]), ("finish", 0, [1, 2, 3]), ("finish", 1, [4, 5, 6])]


def test_times_that_are_complete_at_once_are_finished_in_their_order() -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        other, more = scope.new_input()
        seen = pairs(more.concat(stream)).capture()
    other.advance_to(2)
    for time in (2, 3):
        other.send(time)
        other.advance_to(time + 1)
    handle.send(0)
    other.close()
    handle.close()
    worker.run()
    assert [time for time, _ in seen.messages] == [0, 2, 3]


def test_the_right_to_send_is_held_until_what_came_is_whole_and_no_longer() -> None:
    worker = timely.Worker()
    with worker.dataflow(int) as scope:
        handle, stream = scope.new_input()
        other, more = scope.new_input()
        probe = pairs(stream.concat(more)).probe()
    handle.send(1)
    worker.step()
    handle.advance_to(1)
    for _ in range(3):
        worker.step()
    other.send(2)
    other.advance_to(1)
    worker.step_while(lambda: probe.less_than(1))
    other.advance_to(5)
    handle.send_batch([3, 4])
    handle.advance_to(5)
    worker.step_while(lambda: probe.less_than(5))
    assert not probe.less_than(5), "it still holds what it has no use for"
