"""What a notebook or a prompt shows: pictures, tables, explanations, a run in the background, and errors that cite the cell."""

from __future__ import annotations

import os
import re
import sys
import threading
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from time import monotonic, sleep
from types import SimpleNamespace
from typing import Any, NamedTuple

import attrs
import pyarrow as pa
import pytest

import timely
from timely import differential as dd


class Point(NamedTuple):
    x: int
    y: str


@attrs.frozen
class Named:
    name: str


def shown(records: Any, **schema: Any) -> str:
    worker = timely.Worker()
    with worker.dataflow() as scope:
        numbers, stream = scope.new_input()
        captured = stream.capture()
    numbers.send_batch(records)
    numbers.close()
    worker.run()
    text: str = captured._repr_html_()
    return text


@pytest.mark.parametrize(
    ("records", "columns"),
    [
        ([Point(1, "a")], ["time", "x", "y"]),
        ([Named("<b>")], ["time", "name"]),
        ([("a", 1)], ["time", "0", "1"]),
        ([7], ["time", "record"]),
        (pa.record_batch({"node": [1], "rank": [0.5]}), ["time", "node", "rank"]),
    ],
)
def test_a_capture_is_a_table(records: Any, columns: list[str]) -> None:
    text = shown(records)
    assert "".join(f"<th>{column}</th>" for column in columns) in text
    assert "<td>0</td>" in text
    assert "<b>" not in text


def test_a_long_capture_is_shown_in_part() -> None:
    text = shown(list(range(1000)))
    assert text.count("<tr>") == 21
    assert "... 980 rows more" in text


def test_objects_show_what_they_are() -> None:
    worker = timely.Worker()
    with worker.dataflow(name="df") as scope:
        assert repr(scope) == "ScopeBuilder('/df', time: int, operators: 0, being built)"
        numbers, stream = scope.new_input()
        captured, probe = stream.capture(), stream.probe()
    assert repr(scope) == "ScopeBuilder('/df', time: int, operators: 3, built)"
    assert scope._repr_html_().startswith("<svg")
    numbers.send(1)
    numbers.advance_to(5)
    worker.step()
    assert repr(worker) == "Worker(0 of 1, dataflows: df)"
    assert repr(probe) == "ProbeHandle(/df/probe#2, at 5)"
    assert repr(captured) == "Capture(/df/capture#1, records: 1, times: 1)"
    assert repr(worker.explain(probe)).startswith("/df/probe#2 on worker 0 is at 5, because\n")
    numbers.close()
    worker.run()
    assert repr(worker) == "Worker(0 of 1, dataflows: none)"
    assert repr(probe) == "ProbeHandle(/df/probe#2, done)"


def test_an_output_is_a_table_of_what_is_complete() -> None:
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            orders = dd.table(scope, "customer string, price long")
            totals = dd.sql(scope, "select customer, sum(price) as total from orders group by customer", orders=orders).output()
            letters, collection = dd.new_collection(scope)
            held = collection.output()
        assert "complete at no time yet" in totals._repr_html_()
        orders.session.insert(("ada", 3))
        letters.insert_batch(["a", *map(chr, range(97, 122))])
        for session in (orders.session, letters):
            session.advance_to(1)
        orders.session.insert(("ada", 4))
        text = totals._repr_html_()
        assert "<th>count</th><th>customer</th><th>total</th>" in text and "<td>1</td><td>ada</td><td>3</td>" in text
        text = held._repr_html_()
        assert "<td>2</td><td>a</td>" in text and "... 5 rows more" in text and text.count("<tr>") == 21
        orders.session.close()
        letters.close()
        assert "<td>ada</td><td>7</td>" in totals._repr_html_()


@pytest.mark.parametrize("query", ["select\n  sum(prise) from t", "select\n  sum(price from t", "select\n  1 group buy x"])
def test_a_mistake_in_sql_is_marked_below_the_query(query: str) -> None:
    with timely.Worker().dataflow(int) as scope:
        rows = dd.table(scope, "customer string, price long")
        with pytest.raises(timely.SqlError) as caught:
            dd.sql(scope, query, t=rows)
    [note] = caught.value.__notes__
    line, mark = (each.removeprefix("    ") for each in note.split("\n"))
    assert line == query.split("\n")[1]
    place = re.search(r"at line 2, column (\d+):", str(caught.value))
    assert place is not None and len(mark) - len(mark.lstrip()) == int(place[1]) - 1


# -- runs in the background ----------------------------------------------------------------------------------------------


def counts(worker: timely.Worker) -> None:
    """Send numbers until it is stopped."""
    with worker.dataflow(name="numbers") as scope:
        numbers, stream = scope.new_input()
        probe = stream.exchange(lambda x: x).probe()
    for epoch in range(1, 1 << 60):
        numbers.send(epoch)
        numbers.advance_to(epoch)
        worker.step_while(lambda: probe.less_than(numbers.time))


def until(condition: Any) -> None:
    deadline = monotonic() + 600
    while not condition():
        assert monotonic() < deadline
        sleep(0.01)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_in_the_background_is_looked_at_and_stopped(workers: int) -> None:
    run = timely.start(counts, workers=workers)
    until(lambda: "numbers: epoch " in repr(run))
    assert run.running
    assert repr(run).startswith(f"BackgroundRun({workers} worker")
    assert "<svg" in run._repr_html_()
    explanations: Any = run.explain()
    assert "is not reached, because" in (text := explanations._repr_html_()) and "<svg" in text
    run.stop()
    assert "stopped after" in repr(run)
    with pytest.raises(timely.WorkerError, match="the run was stopped"):
        run.result()
    run.stop()


def test_a_worker_that_waits_is_stopped_too() -> None:
    def waits(worker: timely.Worker) -> None:
        with worker.dataflow() as scope:
            numbers, _ = scope.new_input()
        if worker.index:
            numbers.close()
        worker.run()

    run = timely.start(waits, workers=2, watch=False)
    until(lambda: run.explain() or not run.running)
    run.stop(600)  # a collection of all that the tests hold may take seconds
    assert not run.running


def test_a_run_that_takes_no_step_cannot_be_stopped() -> None:
    go_on, inside = threading.Event(), threading.Event()

    def dawdles(worker: timely.Worker) -> None:
        inside.set()
        go_on.wait(600)

    run = timely.start(dawdles)
    inside.wait(600)
    with pytest.raises(timely.WorkerError, match=r"a worker has not taken a step for 0.01 s"):
        run.stop(0.01)
    with pytest.raises(TimeoutError):
        run.result(0.01)
    go_on.set()
    until(lambda: not run.running)


def test_a_run_that_fails_says_why() -> None:
    def fails(worker: timely.Worker) -> None:
        with worker.dataflow() as scope:
            scope.to_stream([0]).map(lambda x: 1 // x).probe()

    run = timely.start(fails)
    with pytest.raises(timely.OperatorError, match="operator 'map'"):
        run.result(600)
    assert "failed after" in repr(run)
    with pytest.raises(timely.ConfigurationError, match=r"start\(program\) takes a function"):
        timely.start(3)  # type: ignore[arg-type]
    with pytest.raises(timely.ConfigurationError, match="workers=0"):
        timely.start(fails, workers=0)


# -- cells ---------------------------------------------------------------------------------------------------------------


def test_an_error_cites_the_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    InteractiveShell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    shell = InteractiveShell.instance()
    try:
        shell.history_manager.enabled = False
        shell.run_cell(
            "import timely\ndef build(scope):\n    return scope.to_stream([0]).map(lambda x: 1 // x)", store_history=True
        )
        cell = shell.execution_count - 1
        error = shell.run_cell("timely.example(build)", store_history=True).error_in_exec
        assert isinstance(error, timely.OperatorError)
        assert f"'map' was built at cell In[{cell}]:3 in build" in str(error)
    finally:
        InteractiveShell.clear_instance()


def kernel_that_notes(file: Path) -> Any:
    """Return what stands for the module of IPython in a kernel; each process notes in a file what it displays."""

    def show(data: dict[str, str], **_: object) -> Any:
        with file.open("a") as notes:
            notes.write(f"{os.getpid()}: {data.get('text/html', data['text/plain'])}\n")
        return SimpleNamespace(update=show)

    return SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=None), display=SimpleNamespace(display=show))


def test_a_cell_shows_an_output_while_another_thread_changes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown, outputs, go_on = tmp_path / "shown", SimpleQueue[Any](), threading.Event()

    def program(worker: timely.Worker) -> None:
        with worker.dataflow(int, name="df") as scope:
            letters, collection = dd.new_collection(scope)
            held = collection.output()
        letters.insert("a")
        letters.advance_to(1)
        outputs.put(held)
        while not go_on.is_set():
            worker.step_or_park(0.01)
        letters.insert("b")
        letters.close()
        worker.run()

    monkeypatch.setitem(sys.modules, "IPython", kernel_that_notes(shown))
    run = timely.start(program)
    (held := outputs.get(timeout=600))._ipython_display_()
    assert "<td>a</td>" in shown.read_text() and "<td>b</td>" not in shown.read_text()
    go_on.set()
    until(lambda: "<td>b</td>" in shown.read_text())
    run.result()
    assert held.at(1) == {"a": 1, "b": 1}


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_stream_6_the_line_of_several_processes_is_shown_by_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: Any
) -> None:
    shown = tmp_path / "shown"
    monkeypatch.setitem(sys.modules, "IPython", kernel_that_notes(shown))
    timely.execute(partial(held_until, shown), processes=2, start_method=method)
    lines = shown.read_text().splitlines()
    assert {line.partition(": ")[0] for line in lines} == {str(os.getpid())}
    assert any("df: epoch 7" in line for line in lines) and lines[-1] == f"{os.getpid()}: "


def held_until(shown: Path, worker: timely.Worker) -> None:
    """Have a dataflow stay at an epoch until a line says so."""
    with worker.dataflow(int, name="df") as scope:
        numbers, stream = scope.new_input()
        stream.probe()
    numbers.advance_to(7)
    deadline = monotonic() + 600
    while monotonic() < deadline and not (shown.exists() and "df: epoch 7" in shown.read_text()):
        worker.step()
        sleep(0.01)
    numbers.close()
