"""The benchmarks tell the truth: ratios go by round, a growth is noticed, and a wrong answer is refused."""

from __future__ import annotations

import doctest
import importlib
import json
import os
import subprocess
import sys
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import pyarrow as pa
import pytest

from benchmarks import __main__ as command
from benchmarks import counts, counts_programs, environments, measure, peers, startup
from benchmarks.contestants import by_hand
from benchmarks.contestants.told import Task
from benchmarks.counts_programs import PROGRAMS, Program, bytecodes_per_unit
from benchmarks.groups import run_group
from benchmarks.measure import YARDSTICK, Measured, apart, in_turn
from benchmarks.report import Row, as_json, header, markdown
from benchmarks.watch import size, tree
from timely import Worker


@pytest.mark.parametrize("module", [counts, counts_programs, measure])
def test_the_examples_of_the_benchmarks_hold(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


def test_a_ratio_is_the_median_of_the_ratios_of_each_round() -> None:
    ours, theirs = Measured([1, 10, 3]), Measured([2, 30, 4])
    ratio = theirs / ours
    assert isinstance(ratio, Measured)
    assert float(ratio) == 2.0
    assert ratio.rounds == (2.0, 3.0, 4 / 3)
    assert [float(figure) for figure in (1 / ours, 3 * ours, ours * ours)] == [1 / 3, 9.0, 9.0]


def test_measurements_of_different_rounds_are_compared_by_their_medians() -> None:
    assert float(Measured([4, 6]) / Measured([1, 2, 3])) == 2.5


def test_works_take_turns_and_every_other_round_goes_backwards() -> None:
    order: list[str] = []

    def work(name: str, seconds: float) -> float:
        order.append(name)
        return seconds

    result = in_turn({"a": lambda: work("a", 1), "b": lambda: work("b", 2)}, rounds=3)
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert [len(result[name].rounds) for name in (YARDSTICK, "a")] == [3, 3]
    assert result["b"].rounds == (2.0, 2.0, 2.0)


def test_a_report_has_what_was_measured_its_spread_and_its_bar() -> None:
    rows = [Row("quick", Measured([1, 4, 2]), floor=3), Row("slow", 2000.0, floor=3000, less=True), Row("gone", None, note="why")]
    message = json.loads(as_json({"some": rows}, header()))
    assert [(row["group"], row["value"], row["low"], row["high"], row["met"]) for row in message["rows"]] == [
        ("some", 2, 1, 4, False),
        ("some", 2000, None, None, True),
        ("some", None, None, None, None),
    ]
    text = markdown({"some": rows}, header())
    assert "| some: quick | 2 | 1–4 | 3 |  | **no** |" in text  # among those with bars
    assert "| quick |" not in text
    assert "some: gone" not in text
    assert "| gone (why) | not available |" in text
    assert all(name in text for name in ("machine", "Python", "versions", "date", "load"))


def test_a_group_that_fails_takes_nothing_from_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(name: str, options: dict[str, Any]) -> list[Row]:
        if name == "graphs":
            raise RuntimeError("no graph today")
        return [Row(name, float(options["rounds"]))]

    monkeypatch.setattr(command, "run_group", run)
    monkeypatch.setattr(command, "apart", lambda work, *arguments: work(*arguments))
    monkeypatch.setattr("sys.argv", ["benchmarks", "graphs", "control", "--rounds", "2", "--json", str(tmp_path / "rows.json")])
    assert command.main() == 1
    assert [row["value"] for row in json.loads((tmp_path / "rows.json").read_text())["rows"]] == [2]
    shown = capsys.readouterr()
    assert "failed, see above: graphs" in shown.err
    assert "load when each group began: graphs " in shown.out


def test_each_group_has_a_process_of_its_own_and_what_it_measured_comes_back_with_its_rounds() -> None:
    (row,) = apart(_measured)
    assert isinstance(row.value, Measured)
    assert (row.value, row.value.rounds) == (2.0, (1.0, 2.0, 9.0))
    assert row.note != str(os.getpid())
    with pytest.raises(ZeroDivisionError):
        apart(_fail)
    with pytest.raises(BrokenProcessPool):
        apart(os._exit, 3)


def _measured() -> list[Row]:
    return [Row("some", Measured([1, 2, 9]), note=str(os.getpid()))]


def _fail() -> None:
    raise ZeroDivisionError


def test_a_group_gets_the_options_that_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    group = ModuleType("benchmarks.today")
    group.run = lambda rounds, quick: [Row(f"{rounds} {quick}", 1.0)]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, group.__name__, group)
    (row,) = run_group("today", {"rounds": 3, "quick": True, "long": False})
    assert row.name == "3 True"


def counted(passes: int) -> Program:
    """A program of which each unit goes so often round a loop."""

    def make(units: int) -> Any:
        def program(worker: Worker) -> None:
            for _ in range(units):
                for _ in range(passes):
                    pass

        return program

    return Program(make, 5, "unit")


def test_a_program_that_does_a_fifth_more_is_noticed_and_one_that_does_as_much_is_not() -> None:
    before = {"same": bytecodes_per_unit(counted(200)), "more": bytecodes_per_unit(counted(200))}
    now = {"same": bytecodes_per_unit(counted(204)), "more": bytecodes_per_unit(counted(240))}
    changes = counts.compare(before, now)
    assert [change.name for change in counts.grown(changes)] == ["more"]
    assert "GREW: more: " in counts.verdict("bytecodes", changes)
    assert "1 grew by more than 3%, 0 fell, 1 as before" in counts.verdict("bytecodes", changes)
    assert "0 grew by more than 3%, 1 fell" in counts.verdict("bytecodes", counts.compare(now, before))


def test_the_control_plane_executes_as_many_bytecodes_each_time() -> None:
    for name in ("barrier", "pingpong"):
        program = attrs.evolve(PROGRAMS[name], units=20)
        assert bytecodes_per_unit(program) == pytest.approx(bytecodes_per_unit(program), rel=0.005)


def test_comparing_says_what_grew_and_renewing_makes_it_the_baseline(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(counts, "BASELINE", tmp_path / "counts.json")
    monkeypatch.setattr(counts, "count", lambda kind: {"barrier": 100.0})
    assert counts.main("bytecodes", renew=True) == 0
    assert "there is no baseline for this version" in capsys.readouterr().out
    monkeypatch.setattr(counts, "count", lambda kind: {"barrier": 120.0})
    assert counts.main("bytecodes", renew=False) == 1
    assert "GREW: barrier: 100 -> 120 (+20.0%)" in capsys.readouterr().out
    assert counts.baseline("bytecodes") == {"barrier": 100.0}
    assert counts.baseline("instructions") == {}


def test_the_committed_baseline_knows_the_programs_that_are_counted() -> None:
    baselines = json.loads(counts.BASELINE.read_text())
    assert {"bytecodes", "instructions"} >= baselines.keys() >= {"bytecodes"}
    for versions in baselines.values():
        for result in versions.values():
            assert result.keys() == PROGRAMS.keys()


def test_peers_are_asked_in_turn_and_their_answers_are_checked(tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("tea for two\ntwo for tea\n")
    contestants = [
        peers.Contestant("records", "words", "word_count", (1, 2)),
        peers.Contestant("counter", "contestants.by_hand", "word_count"),
    ]
    expected = dict(by_hand.word_count(Task(str(lines))))
    assert expected == {"tea": 2, "for": 2, "two": 2}
    contest = peers.Contest("words", str(lines), 6, "words", expected, contestants, [peers.Pair("records", "counter", 5.0)])
    rows = {row.name: row for row in peers.hold(contest, rounds=1)}
    assert rows.keys() == {
        "words: records, words/s",
        "words: counter, words/s",
        "words: counter over records",
        "words: counter over records, whole process",
    }
    assert rows["words: counter over records"].floor == 5.0
    assert rows["words: records, words/s"].note.startswith("batches of ")


def test_an_answer_that_misses_or_miscounts_a_word_is_refused() -> None:
    expected = {"tea": 2, "two": 1}
    peers.check([("tea", 1), ("two", 1), ("tea", 1)], expected, "someone")
    with pytest.raises(AssertionError, match="someone: 1 keys, and not the 2"):
        peers.check([("tea", 2)], expected, "someone")
    with pytest.raises(AssertionError, match="someone: 1 keys have another value, among them 'two': 2"):
        peers.check([("tea", 2), ("two", 2)], expected, "someone")


def test_a_peer_that_cannot_be_installed_is_a_row_that_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def python_with(requirement: str) -> str:
        raise environments.Unavailable(f"{requirement}: not for this machine")

    monkeypatch.setattr(peers, "python_with", python_with)
    contestants = [peers.Contestant("bytewax", "contestants.by_bytewax", "exchange")]
    contest = peers.Contest("exchange", "3", 3, "numbers", {}, contestants, [])
    (row,) = peers.hold(contest, rounds=1)
    assert (row.value, row.note, row.met) == (None, f"{peers.REQUIREMENTS['contestants.by_bytewax']}: not for this machine", None)


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="the system does not say what a process holds")
def test_a_view_is_compared_with_duckdb_after_each_change() -> None:
    pytest.importorskip("duckdb")
    views = importlib.import_module("benchmarks.views")
    lines = views.required(
        pa.table({"l_orderkey": range(40), "l_linenumber": [1] * 40, "l_quantity": [n % 7 for n in range(40)]})
    )
    orders = views.required(pa.table({"o_orderkey": range(0, 40, 2), "o_orderpriority": ["a", "b"] * 10}))
    tables = {"lineitem": lines, "orders": orders, "part": orders}
    query = "select o_orderpriority, sum(l_quantity) from lineitem, orders where l_orderkey = o_orderkey group by o_orderpriority"
    assert list(views.tables_in(query, tables)) == ["lineitem", "orders"]
    result = views.measured(99, query, tables, {1: 4, 10: 2})
    assert len(result.one) == 4 and len(result.thousand) == 2
    assert next(row.name for row in views.rows_of(99, result)) == "Q99: load, over DuckDB's query"
    assert len(views.summary([result])) == 3
    for ours, theirs in (([(1, 2.0)], [(1, 2.1)]), ([(1,)], [(1,), (1,)]), ([(1,)], [])):
        with pytest.raises(AssertionError, match="DuckDB finds"):
            views.check_equal("q", ours, theirs)
    views.check_equal("q", [(1, 0.1 + 0.2)], [(1, 0.3)])


def test_the_memory_of_a_process_is_that_of_its_children_too() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert tree(os.getpid())[0] == os.getpid()
        assert child.pid in tree(os.getpid())
        assert size(child.pid) > 0
    assert size(child.pid) == 0


def test_what_a_connection_takes_is_counted_to_the_byte() -> None:
    """The signatures of the handshake differ in length by a few bytes; the rest is always the same."""
    there, back = startup.handshake_bytes()
    assert 700 < there < 1000
    assert 600 < back < 1000


@pytest.mark.soak
def test_a_run_is_opened_for_workers_that_are_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup, "PROCESSES", 1)
    opened = startup.register(3)
    assert 0 < opened.driver < opened.clients + opened.seconds
    assert opened.memory >= 0
