"""``timely checkpoint``: on the checkpoints of a program, and on the data of a server.

White box: no program writes the files of a stranger, so they are made here.
"""

from __future__ import annotations

import json
import re
import runpy
import struct
from pathlib import Path
from typing import Any

import attrs
import pytest

import timely
from timely import differential as dd
from timely.cli import main
from timely.recovery import LocalStore
from timely.recovery.manifest import MANIFEST, FileInfo, Layer, Manifest, checkpoint_name, state_name
from timely.recovery.state_file import StateWriter, digest
from timely.server import Views
from timely.server.log import Disk, Frame, LogWriter

RUN = "00000001-0123abcd"


def program(worker: timely.Worker, where: Path) -> None:
    with timely.Recovery(worker, where) as recovery:
        with worker.dataflow(int, name="totals") as scope:
            numbers, stream = scope.new_input()
            stream.state_machine(lambda key, value, total: ((total or 0) + value, [])).capture()
        for day in range(3):
            numbers.send(("bolts" if worker.index else "nuts", day))
            numbers.advance_to(day + 1)
            recovery.checkpoint(day + 1)
        numbers.close()
        worker.run()


def printed(capsys: pytest.CaptureFixture[str], *arguments: object, status: int = 0) -> str:
    assert main(["checkpoint", *map(str, arguments)]) == status
    captured = capsys.readouterr()
    return re.sub(r"[0-9]{8}-[0-9a-f]{8}", "RUN", captured.out if status == 0 else captured.err)


def test_checkpoints_of_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    timely.execute(lambda worker: program(worker, tmp_path), workers=2)
    lines = printed(capsys, "list", tmp_path).splitlines()
    assert [line.partition(",")[0] for line in lines] == ["RUN-00000002  at 3", "RUN-00000001  at 2"]
    assert re.fullmatch(r"RUN-00000002  at 3, run 1, 2 workers, 2 parts of state, [0-9.]+ .*", lines[0])
    shown = printed(capsys, "show", tmp_path)
    assert "  operator /totals/state_machine#" in shown
    assert re.search(r"\n +6 +[0-9]+ bytes +[1-3]  /totals/state_machine#[0-9], part 0 of dataflow 0\n", shown)
    assert printed(capsys, "verify", tmp_path) == "RUN-00000002: good\nRUN-00000001: good\n"
    assert "there is no checkpoint nope in" in printed(capsys, "show", tmp_path, "nope", status=1)
    newest = max(tmp_path.glob("*.state"))
    newest.write_bytes(newest.read_bytes()[:-9])
    assert "is damaged: checkpoint RUN-00000002: state file RUN" in printed(capsys, "verify", tmp_path, status=1)
    assert "there is no checkpoint in" in printed(capsys, "list", tmp_path / "none", status=1)


PROGRAM = """
import timely
from timely import differential as dd

def program(worker):
    with timely.Recovery(worker, {where!r}, changed={changed!r}) as recovery:
        with worker.dataflow(int) as scope:
            sold = dd.table(scope, "item string, n long", name="sold")
            best = dd.sql(scope, {query!r}, name="best", sold=sold)
            {more}
        sold.session.advance_to(recovery.time or 0)
        sold.session.insert(("bolts", 1))
        sold.session.advance_to(1)
        recovery.checkpoint(1)
        raise AssertionError("this is no rehearsal")

try:
    timely.execute(program, workers=2)
except AssertionError:
    pass
"""


def test_what_a_changed_program_would_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / name for name in ("old.py", "new.py", "other.py", "none.py")]
    old, new, other, none = files
    where, query = str(tmp_path / "state"), "select item, max(n) as n from sold group by item"
    old.write_text(PROGRAM.format(where=where, changed="migrate", query=query, more="best.output()"))
    runpy.run_path(str(old), run_name="__main__")
    before = {path.name: path.read_bytes() for path in Path(where).iterdir()}
    more = 'dd.sql(scope, "select n from best", name="many", best=best)'
    new.write_text(PROGRAM.format(where="nowhere", changed="migrate", query=query.replace("max", "sum"), more=more))
    lines = printed(capsys, "diff", where, new).splitlines()
    assert lines[:-1] == ["dataflow 0:", "  same     sold", "  new      many", "  gone     best/output"]
    assert re.fullmatch(r"  changed  best: it was SELECT item, MAX\(n\) .*, and is SELECT item, SUM\(n\) .*", lines[-1])
    other.write_text(PROGRAM.format(where="nowhere", changed="migrate", query=query, more="best.collection.count()"))
    assert "unnamed operators have changed, " in printed(capsys, "diff", where, other, status=1)
    none.write_text("")
    assert "none.py made no timely.Recovery" in printed(capsys, "diff", where, none, status=1)
    assert "diff needs a program" in printed(capsys, "diff", where, status=1)
    assert before == {path.name: path.read_bytes() for path in Path(where).iterdir()}


def test_parts_that_were_called_otherwise_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(name: str, **how: Any) -> None:
        worker = timely.Worker()
        with timely.Recovery(worker, tmp_path, changed="migrate", **how) as recovery:
            with worker.dataflow(int) as scope:
                table = dd.table(scope, "n long", name=name)
            begin = recovery.time or 0
            table.session.advance_to(begin)
            table.session.insert((begin,))
            table.session.advance_to(begin + 1)
            recovery.checkpoint(begin + 1)

    run("a")
    run("b", renamed={"a": "b"})
    assert re.search(r"\n +2 +[0-9]+ bytes +2  b/rows#[0-9], part 1 of dataflow 0\n", printed(capsys, "show", tmp_path))


class Bomb:
    """Its pickle makes a file where it is read."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._place,)


def test_what_is_in_the_directory_of_a_stranger_is_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state, log, ran = tmp_path / "state", tmp_path / "log", tmp_path / "ran"
    name = checkpoint_name(RUN, 0)
    writer, bomb = StateWriter(state_name(name, 0)), Bomb(ran)
    store = LocalStore(state)
    store.write(writer.name, writer.chunks([((0, "/t", 0), [(None, bomb), (7, bomb)])]))
    files = {writer.name: FileInfo(writer.size, writer.digest)}
    layers = {(0, "/t", 0): [Layer(name, 1, True, 10)]}
    forged = Manifest(name, "", None, 3, [bomb], 1, [{}], layers, files)
    log.mkdir()
    (tmp_path / "id").write_text("0123456789abcdef")
    LogWriter(Disk(log), "0123456789abcdef", RUN, 3, None).append(Frame(3, bomb))
    for time, peers in ((3, 1), (bomb, 1), (3, 10**9)):
        layers = {key: [attrs.evolve(layer, peers=peers) for layer in part] for key, part in layers.items()}
        store.write(name + MANIFEST, [attrs.evolve(forged, time=time, layers=layers).encode()])
        for action, fails in (("list", False), ("show", peers > 1), ("verify", time is bomb)):
            assert main(["checkpoint", action, str(tmp_path)]) == int(fails)
    shown = capsys.readouterr()
    assert "the log behind them: 1 epoch\n" in shown.out and " 2 " in shown.out and "has no file" in shown.err
    for block in ([0, 0, 0, 1 << 40, "", writer.name, 1], [0, 0, "0", 1, "", writer.name, 1], [0, 0, 0, 1, "", "", "1"]):
        index = json.dumps([[0, "/t", 0, [block]]]).encode()
        store.write(writer.name, [index, struct.pack(">QQ8s", 0, len(index), b"timely-2")])
        files = {writer.name: FileInfo(len(index) + 24, digest(index))}
        store.write(name + MANIFEST, [attrs.evolve(forged, files=files).encode()])
        for action in ("show", "verify"):
            assert main(["checkpoint", action, str(tmp_path)]) == 1
    shown = capsys.readouterr()
    assert f"{shown}".count("its index has a block that is not in it") == 6
    content = json.dumps({"files": {"../../etc/passwd": [1, ""]}})
    for body in ("{}", "[" * 10**5, content):
        begin = b"timely checkpoint 5 "
        sealed = begin + digest(begin + body.encode()).encode() + b"\n" + body.encode()
        store.write(name + MANIFEST, [sealed])
        assert main(["checkpoint", "verify", str(tmp_path)]) == 1
    assert not ran.exists()


def test_the_data_of_a_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Views(data=tmp_path) as views:
        views.run_script("create table t (k varchar, n bigint); create view totals as select k, sum(n) as n from t group by k")
        views.write("t", insert=[("a", 1), ("b", 2)], idempotency_key="x")
    views = Views(data=tmp_path)
    views.write("t", insert=[("c", 3)])
    assert printed(capsys, "list", tmp_path).startswith("RUN-00000000  at 3, run 1, 1 worker, 10 parts of state, ")
    shown = printed(capsys, "show", tmp_path)
    assert (
        "  table t: k VARCHAR, n BIGINT\n  view totals: select k, sum(n) as n from t group by k\n    operator t#0 with " in shown
    )
    assert re.search(r"\n +2 +[0-9]+ bytes +1  /t, part 0 of dataflow 0\n", shown)
    assert printed(capsys, "verify", tmp_path) == "RUN-00000000: good\nthe log behind them: 1 epoch\n"
    [*_, last] = sorted((tmp_path / "log").iterdir())
    data = last.read_bytes()
    last.write_bytes(data.rstrip(b"\0")[:-9])
    assert re.fullmatch(
        "RUN-00000000: good\nthe log behind them: 0 epochs, and [0-9]+ bytes of one that was not whole\n",
        printed(capsys, "verify", tmp_path),
    )
    last.write_bytes(b"\1" + data[1:])
    assert "damaged" in printed(capsys, "verify", tmp_path, status=1)
    views.close()
