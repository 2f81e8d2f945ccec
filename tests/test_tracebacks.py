"""A traceback begins with the user's own line; the library's frames are folded, unless the environment asks for them."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

import timely
from timely.server import Views

LIBRARY = str(Path(timely.__file__).parent)


def refused(number: int) -> int:
    raise ValueError("refused")


def fails_in_an_operator(worker: timely.Worker) -> None:
    with worker.dataflow() as scope:
        scope.to_stream([1]).map(refused).probe()
    worker.run()


def fails_after_the_program(worker: timely.Worker) -> None:
    with worker.dataflow() as scope:
        scope.to_stream([1]).map(refused).probe()


def is_no_graph(worker: timely.Worker) -> None:
    with worker.dataflow() as scope:
        scope.feedback()


def fails_itself(worker: timely.Worker) -> None:
    raise KeyError("mine")


def stepped(step: Callable[[timely.Worker], object]) -> None:
    worker = timely.Worker()
    with worker.dataflow() as scope:
        scope.to_stream([1]).map(refused).probe()
    step(worker)


def with_table() -> Views:
    views = Views()
    views.table("t", "n long")
    return views


CALLS: dict[str, Callable[[], object]] = {
    "example": lambda: timely.example(lambda scope: scope.to_stream([1]).map(refused)),
    "execute": lambda: timely.execute(fails_in_an_operator),
    "at the end": lambda: timely.execute(fails_after_the_program),
    "threads": lambda: timely.execute(fails_in_an_operator, workers=2),
    "processes": lambda: timely.execute(fails_in_an_operator, processes=2),
    "graph": lambda: timely.execute(is_no_graph),
    "a view that is not there": lambda: Views().read("nope"),
    "a write that does not fit": lambda: with_table().write("t", insert=[("x",)]),
    "program": lambda: timely.execute(fails_itself),
    "step": lambda: stepped(timely.Worker.step),
    "run": lambda: stepped(timely.Worker.run),
    "run_step": lambda: stepped(timely.Worker.run_step),
    "step_or_park": lambda: stepped(timely.Worker.step_or_park),
    "step_while": lambda: stepped(lambda worker: worker.step_while(lambda: True)),
}


def printed(call: Callable[[], object]) -> str:
    with pytest.raises(Exception) as caught:
        call()
    return "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("name", CALLS)
def test_no_line_of_a_traceback_is_the_librarys(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIMELY_TRACEBACK", raising=False)
    text = printed(CALLS[name])
    assert f'File "{LIBRARY}' not in text
    if "refused" in text:
        assert text.count("TIMELY_TRACEBACK=full") == (2 if name == "processes" else 1)
        first = next(line for line in text.splitlines() if line.startswith("  File"))
        assert first.endswith(" in refused") or name == "processes"


@pytest.mark.parametrize("name", ["example", "graph", "program"])
def test_the_environment_asks_for_the_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELY_TRACEBACK", "full")
    text = printed(CALLS[name])
    assert f'File "{LIBRARY}' in text
    assert "folded" not in text


def test_an_error_that_no_line_of_the_user_raises_keeps_the_librarys() -> None:
    text = printed(lambda: timely.example(lambda scope: scope.to_stream([1]).map(3)))  # type: ignore[arg-type]
    assert f'File "{LIBRARY}' in text
    assert "'int' object is not callable" in text
