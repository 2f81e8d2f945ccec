"""C: sessions that change a collection from outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from timely import Worker
from timely import differential as dd
from timely.errors import TimelyError

Run = Callable[..., Any]


def opened(worker: Worker) -> tuple[dd.InputSession[int, Any], dd.Output[int, Any], Any]:
    with worker.dataflow(int) as scope:
        session, collection = dd.new_collection(scope)
        return session, collection.output(), collection.probe()


def stepped(worker: Worker) -> None:
    while not worker.idle:
        worker.step()


def test_DD_C1_insert_and_remove_as_time_advances() -> None:
    with Worker() as worker:
        session, output, _ = opened(worker)
        for record in range(10):
            session.insert(record)
        session.insert(3)
        session.advance_to(1)
        session.insert(5)
        session.advance_to(2)
        session.remove(5)
        session.advance_to(3)
        ten = [(record, 0, 1) for record in range(10) if record != 3]
        assert output.changes() == [*sorted([*ten, (3, 0, 2)]), (5, 1, 1), (5, 2, -1)]
        assert output.at(0) == {**dict.fromkeys(range(10), 1), 3: 2}
        assert output.at(1)[5] == 2 and output.at(2)[5] == 1
        session.close()


def test_DD_C2_one_update_of_three_equals_three_inserts(run: Run) -> None:
    assert run(lambda c: c, [("x", 0, 3)]) == run(lambda c: c, [("x", 0, 1)] * 3) == [("x", 0, 3)]


def test_DD_C3_going_back_is_an_error_and_sends_nothing() -> None:
    with Worker() as worker:
        session, output, _ = opened(worker)
        session.advance_to(5)
        with pytest.raises(TimelyError, match="is not at or after it"):
            session.advance_to(4)
        with pytest.raises(TimelyError, match="is not at or after it"):
            session.update_at("r", 3, 1)
        assert session.time == 5
        session.close()
        assert output.changes() == []


def test_DD_C4_an_update_of_a_later_time_holds_nothing_up() -> None:
    with Worker() as worker:
        session, output, probe = opened(worker)
        session.advance_to(5)
        session.update_at("r", 7, 1)
        session.insert("now")
        session.advance_to(6)
        stepped(worker)
        assert not probe.less_than(6) and output.changes() == [("now", 5, 1)]
        session.close()
        assert output.changes() == [("now", 5, 1), ("r", 7, 1)]


def test_DD_C5_a_record_that_never_was(run: Run) -> None:
    changes = [(("r", 1), 1, -1)]
    assert run(lambda c: c, changes) == changes
    assert run(lambda c: c.map(lambda pair: pair[0]), changes) == [("r", 1, -1)]
    assert run(lambda c: c.concat(c), changes) == [(("r", 1), 1, -2)]
    assert run(lambda c, d: c.join(d), changes, [(("r", "x"), 0, 3)]) == [(("r", (1, "x")), 1, -3)]


def test_DD_C6_closing_sends_what_waits() -> None:
    with Worker() as worker:
        session, output, probe = opened(worker)
        session.insert("a")
        session.close()
        assert output.changes() == [("a", 0, 1)] and probe.done()
    with Worker() as worker:
        session, output, probe = opened(worker)
        with session:
            session.insert("a")
        assert output.changes() == [("a", 0, 1)] and probe.done()


def test_DD_C6_flush_ends_a_batch() -> None:
    sizes: list[int] = []
    with Worker() as worker:
        with worker.dataflow(int) as scope:
            session, collection = dd.new_collection(scope)
            collection.stream.inspect_batch(lambda time, batch: sizes.append(len(batch)))
        for record in "abcde":
            session.insert(record)
            if record == "b":
                session.flush()
                session.flush()
        session.close()
        worker.run()
    assert sizes == [2, 3]


def test_DD_C6_an_output_is_done_when_all_is_complete() -> None:
    with Worker() as worker:
        session, output, _ = opened(worker)
        done = [output.done]
        session.insert("a")
        acts: list[Callable[[], object]] = [lambda: session.advance_to(1), session.close]
        for act in acts:
            act()
            done.append(output.done)
            stepped(worker)
            done.append(output.done)
        assert done == [False, False, False, False, True]
        assert output.at(0) == {"a": 1}


def test_DD_C7_only_advance_to_moves_the_frontier() -> None:
    with Worker() as worker:
        session, _, probe = opened(worker)
        session.insert("a")
        session.flush()
        stepped(worker)
        assert probe.less_equal(0)
        session.advance_to(4)
        stepped(worker)
        assert not probe.less_than(4) and probe.less_equal(4)
        session.close()
