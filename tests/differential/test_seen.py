"""What keeps collections up to date can be seen: sizes of arrangements, and the records that a loop still changes.

White box: the time after which something counts as stuck is set, and the report that the live page is sent is read back.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import timely
from timely import differential as dd
from timely.inspect import LivePage, capability_holders, picture, snapshot
from timely.inspect import report as reports
from timely.inspect.report import plain, shaped


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is asked has as long as a busy machine may need to let it answer."""
    monkeypatch.setattr(capability_holders, "_SECONDS", 60.0)


def texts(scope: Any) -> dict[str, tuple[str, ...]]:
    """Return what is shown at the operators, by path."""
    return {operator.path: operator.described for operator in snapshot(scope).operators() if operator.described}


def settle(worker: timely.Worker) -> None:
    """Step a worker without peers until nothing can move."""
    while not worker.idle:
        worker.step()


def opened(build: Callable[[Any], Any]) -> tuple[timely.Worker, Any, Any, Any]:
    """Return a worker, the scope of its dataflow, a session of pairs, and what ``build`` makes of them."""
    worker = timely.Worker()
    with worker.dataflow(int, name="df") as scope:
        session, pairs = dd.new_collection(scope)
        return worker, scope, session, build(pairs)


def flip(scope: Any, pairs: Any) -> timely.ProbeHandle[Any]:
    """Build a loop that changes the sign of each pair's value in each round."""
    with scope.iterative("flip") as loop:
        sign = dd.Variable(loop, pairs.enter(loop))
        return sign.set(sign.collection.map(lambda pair: (pair[0], -pair[1])).distinct()).leave().stream.probe()


# -- loops that do not settle ---------------------------------------------------------------------------------------------


def test_records_of_a_loop_that_does_not_settle_are_named() -> None:
    worker, scope, numbers, probe = opened(lambda pairs: flip(pairs.scope, pairs))
    numbers.insert((3, 7))
    numbers.close()
    for _ in range(500):
        worker.step()
    for explanation in (worker.explain(probe), worker.explain(scope)):
        [description] = explanation.described
        assert description.path == "/df/flip#1/feedback#0" and description.worker == 0 and description.records
        assert "((3, 7), +1)" in description.text and "((3, 7), -1)" in description.text
        assert "of epoch 0" in description.text and "at round 2" in description.text  # 500 steps are some 250 rounds
        assert f"{description.path} on worker 0: the last changes of the loop's variable: " in str(explanation)
    assert probe.less_equal(0)
    worker.drop_dataflow(scope)


def test_many_records_are_cut_as_rows_and_as_columns() -> None:
    for count in (5, 1000):
        worker, scope, numbers, probe = opened(lambda pairs: flip(pairs.scope, pairs))
        for number in range(count):
            numbers.insert((number, 7))
        numbers.close()
        for _ in range(60):
            worker.step()
        [description] = worker.explain(probe).described
        newest = description.text.split(": ")[1].split(";")[0]
        assert newest.count("+1") + newest.count("-1") == 3 and " and more at round " in newest
        worker.drop_dataflow(scope)


@pytest.mark.parametrize(("workers", "processes"), [(2, 1), (1, 2)])
def test_records_are_named_with_their_workers(workers: int, processes: int) -> None:
    def program(worker: timely.Worker) -> tuple[dict[int, str], str] | None:
        with worker.dataflow(int, name="df") as scope:
            numbers, pairs = dd.new_collection(scope)
            probe = flip(scope, pairs)
        if worker.index == 0:
            for number in range(20):
                numbers.insert((number, 7))
        numbers.close()
        for _ in range(300):
            worker.step()
        worker.all_gather("changing")
        explanation = worker.explain(probe) if worker.index == 0 else None
        worker.all_gather("asked")
        worker.drop_dataflow(scope)
        if explanation is None:
            return None
        assert all(each.path == "/df/flip#1/feedback#0" or not each.records for each in explanation.described)
        return {each.worker: each.text for each in explanation.described if each.records}, str(explanation)

    described = timely.execute(program, workers=workers, processes=processes)[0]
    assert described is not None
    text_of, words = described
    assert set(text_of) == {0, 1}
    assert all(text.startswith("the last changes of the loop's variable: ((") for text in text_of.values())
    assert "/df/flip#1/feedback#0 on worker 1: the last changes of the loop's variable: ((" in words


def test_of_nested_loops_each_is_named_with_its_rounds() -> None:
    worker = timely.Worker()
    with worker.dataflow(int, name="df") as scope:
        numbers, pairs = dd.new_collection(scope)
        with scope.iterative("outer") as outer:
            around = dd.Variable(outer, pairs.enter(outer))
            with outer.iterative("flip") as loop:
                sign = dd.Variable(loop, around.collection.enter(loop))
                settled = sign.set(sign.collection.map(lambda pair: (pair[0], -pair[1])).distinct()).leave()
            probe = around.set(settled).leave().stream.probe()
    numbers.insert((3, 7))
    numbers.close()
    for _ in range(100):
        worker.step()
    explanation = worker.explain(probe)
    text_of = {each.path.split("/")[-2].split("#")[0]: each.text for each in explanation.described if each.records}
    assert set(text_of) == {"outer", "flip"}
    assert "of round 0 of epoch 0" in text_of["flip"] and "at round 0 of epoch 0" in text_of["outer"]
    worker.drop_dataflow(scope)


def test_of_a_loop_outside_of_the_reasons_nothing_is_shown() -> None:
    worker = timely.Worker()
    with worker.dataflow(int, name="df") as scope:
        numbers, collection = dd.new_collection(scope)
        probe = dd.iterate(scope, lambda loop, x: x.concat(collection.enter(loop)).distinct()).stream.probe()
    numbers.insert(1)
    numbers.advance_to(1)
    settle(worker)
    explanation = worker.explain(probe)
    assert [reason.kind for reason in explanation.reasons] == ["input"] and explanation.described == ()
    numbers.close()
    worker.run()
    assert worker.explain(probe).described == ()


# -- sizes ----------------------------------------------------------------------------------------------------------------


def test_a_shared_trace_is_counted_once_and_named_by_its_readers() -> None:
    worker = timely.Worker()
    with worker.dataflow(int, name="df") as scope:
        session, edges = dd.new_collection(scope)
        by_source = edges.arrange_by_key()
        degrees = by_source.as_collection().reduce(lambda key, values: [(len(values), 1)], name="degrees")
        degrees.join(by_source).stream.probe()
        with scope.iterative("loop") as loop:
            inner = by_source.enter(loop)
            inner.as_collection().join(inner).leave().stream.probe()
    for edge in [(1, 2), (1, 3), (2, 3)]:
        session.insert(edge)
    session.advance_to(1)
    settle(worker)
    described = texts(scope)
    [arrangement] = [path for path, lines in described.items() if "arrange_by_key" in path and lines[0].startswith("3 updates")]
    assert described[arrangement] == ("3 updates, 2 keys",)
    name = arrangement.removeprefix("/df/")
    [reduction] = [path for path in described if "degrees" in path]
    assert described[reduction] == (f"reads {name}", "output: 2 updates, 2 keys")
    joins = [lines for path, lines in described.items() if "join" in path]
    assert (f"reads {arrangement}",) in joins  # inside the loop, of both sides once, with its whole path
    assert any(f"reads {name}" in lines and len(lines) == 2 for lines in joins)
    assert str(picture(scope)).count("3 updates") == 1
    session.close()
    worker.run()


def test_a_picture_has_the_sizes_as_they_are_now() -> None:
    worker, scope, session, _ = opened(lambda pairs: (pairs.count_by_key().stream.probe(), pairs.arrange_by_key()))
    for number in range(1000):
        session.insert((number, number % 3))
    session.advance_to(1)
    settle(worker)
    drawn = picture(scope)
    for text in (drawn.svg(), drawn.mermaid(), drawn.html()):
        assert ">1,000 updates, 1,000 keys<" in text.replace("&quot;", '"') or "<br>1,000 updates, 1,000 keys" in text
        assert "input: 1,000 updates, 1,000 keys" in text and "output: 1,000 updates, 1,000 keys" in text
    for number in range(998):
        session.remove((number, number % 3))
    session.advance_to(2)
    settle(worker)
    assert "1,998 updates" in str(picture(scope))
    session.close()
    worker.run()


def test_groups_in_bags_are_counted() -> None:
    worker, scope, session, _ = opened(lambda pairs: pairs.min_by_key().stream.probe())
    for epoch in range(3):
        for number in range(100):
            session.insert(("hot", (epoch, number)))
        session.insert((f"cold {epoch}", 1))
        session.advance_to(epoch + 1)
        settle(worker)
    [lines] = texts(scope).values()
    assert lines == ("input: 3 updates, 3 keys; in large groups 300 updates, 1 key", "output: 4 updates, 4 keys")
    session.close()
    worker.run()


def test_the_keys_of_several_batches_are_bounded() -> None:
    worker, scope, session, _ = opened(lambda pairs: pairs.arrange_by_key())
    for epoch in range(2):
        for number in range(1000 // (1 + 9 * epoch)):
            session.insert((number, epoch))
        session.advance_to(epoch + 1)
        settle(worker)
    [[text]] = texts(scope).values()
    assert text in ("1,100 updates, at most 1,100 keys", "1,100 updates, 1,000 keys")
    session.close()
    worker.run()


@pytest.mark.parametrize("epochs", [1, 3])
def test_history_6_arrow_rows_have_keys(epochs: int) -> None:
    pa = pytest.importorskip("pyarrow")
    schema = pa.schema([("k", pa.int64()), ("v", pa.string())])
    worker = timely.Worker()
    with worker.dataflow(int, name="df") as scope:
        left, right = dd.table(scope, schema), dd.table(scope, schema)
        dd.sql(scope, "select l.k, l.v, r.v as w from l join r on l.k = r.k", l=left, r=right).collection.probe()
    for epoch in range(epochs):
        part = pa.table({"k": [2 * number for number in range(10_000)], "v": [str(number + epoch) for number in range(10_000)]})
        left.session.insert_columns(part)
        left.session.advance_to(epoch + 1)
        settle(worker)
    left.session.insert((1, "odd"))  # a row beside the columns
    left.session.advance_to(epochs + 1)
    settle(worker)
    [line] = [text for path, [text, *_] in texts(scope).items() if "arrange" in path and text != "0 updates, 0 keys"]
    updates = 10_000 * epochs + 1
    keys = [10_000 * runs + 1 for runs in range(1, epochs + 1)]  # runs merge, or not yet
    assert line in [f"{updates:,} updates, at most {count:,} keys" for count in keys]
    left.session.close()
    right.session.close()
    worker.run()


# -- the live page --------------------------------------------------------------------------------------------------------


def test_the_live_page_has_the_sizes_of_each_worker_and_no_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "_STILL", 0.0)
    states: list[dict[str, Any]] = []

    def program(worker: timely.Worker) -> None:
        page.watch(worker)
        with worker.dataflow(int, name="df") as scope:
            session, pairs = dd.new_collection(scope)
            pairs.arrange_by_key()
            with scope.iterative("bounded") as loop:
                step = timely.ProductSummary(timely.Step(0), timely.Step(1, limit=3))
                variable: dd.Variable[Any, Any] = dd.Variable(loop, step=step)
                variable.set(variable.collection.concat(pairs.enter(loop))).leave().stream.probe()
        if worker.index == 0:
            for number in range(40):
                session.insert(("secret", number) if number == 7 else (number, number))
        session.flush()
        for _ in range(20):
            while not worker.idle:
                worker.step()
            worker.all_gather(None)
        if worker.index == 0:
            states.append(page.state())
        worker.all_gather("seen")
        session.close()
        worker.run()

    with LivePage() as page:
        timely.execute(program, workers=2)
    [run] = states[0]["runs"]
    [flow] = run["dataflows"]
    [row] = [row for row in flow["operators"] if row["described"] != [[], []]]
    assert "arrange_by_key" in row["path"]
    sizes = [int(part[0].split()[0]) for part in row["described"]]
    assert sum(sizes) == 40 and min(sizes) > 0
    assert [part[0].split(" on ")[1] for part in row["described"]] == ["worker 0", "worker 1"]
    assert flow["stuck"] and "secret" not in json.dumps(states)


def test_a_loop_that_is_stuck_shows_its_records_to_who_asks_and_not_on_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "_STILL", 0.0)
    worker = timely.Worker()
    with LivePage() as page:
        page.watch(worker)
        with worker.dataflow(int, name="df") as scope:
            numbers, pairs = dd.new_collection(scope)
            probe = flip(scope, pairs)
        numbers.insert(("secret", 7))
        numbers.close()
        for _ in range(60):
            worker.step()
        assert "secret" in str(worker.explain(probe))
        states = json.dumps([page.state(), page.state()])
        assert "feedback" in states and "secret" not in states and "secret" not in str(picture(scope))
        worker.drop_dataflow(scope)


# -- what any operator may say ---------------------------------------------------------------------------------------------


def test_an_operator_of_a_program_describes_itself_where_it_is_looked_at() -> None:
    held: list[Any] = []

    def constructor(capability: Any, info: timely.OperatorInfo) -> Any:
        info.describe(lambda: f"{len(held)} held")
        info.describe(lambda: "")
        info.describe(lambda: str(1 // 0))
        info.describe(lambda: next(iter([])))

        def logic(input: Any, output: Any) -> None:
            held.extend(cap.retain() for cap, _ in input)

        return logic

    worker = timely.Worker()
    with worker.dataflow(int, name="df") as scope:
        probe = scope.to_stream([1]).unary(timely.Pipeline, "keeper", constructor).probe()
    worker.step()
    [path] = texts(scope)
    assert texts(scope)[path][0] == "1 held"
    assert texts(scope)[path][1:] == ("its description raised ZeroDivisionError", "its description raised StopIteration")
    assert shaped(json.loads(json.dumps(plain(snapshot(scope))))) == snapshot(scope)
    explanation = worker.explain(probe)
    assert (explanation.described[0].path, explanation.described[0].text) == (path, "1 held")
    assert explanation.without_records() == explanation
    for cap in held:
        cap.drop()
    worker.run()
    assert texts(scope) == {}
