"""Durable views: what a restart has, requests with keys, groups, full disks, and two servers at one directory.

White box: no answer says whether a view was computed.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import socket
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

import timely
from tests.server.client import Events, ask
from timely.differential.trace import trace_state
from timely.errors import (
    CheckpointError,
    ConfigurationError,
    DifferenceError,
    DiskFullError,
    IdempotencyError,
    SchemaError,
    SqlError,
    ViewError,
)
from timely.recovery import LocalStore
from timely.server import InputWatcher, Limits, Views, ViewServer, WatchedInput
from timely.server.computation import Computation

TOTALS = "select k, sum(n) as total from t group by k"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def numbers(data: Path) -> Views:
    views = Views(data=data)
    views.table("t", "k string, n long", [("a", 1)])
    views.view("totals", TOTALS)
    return views


def rows(views: Views, name: str = "totals") -> list[Any]:
    return sorted(row for row, count in views.read(name).rows for _ in range(count))


def crashed(data: Path, tmp_path: Path) -> Path:
    """Return a copy of a directory as a crash would leave it now."""
    copy = tmp_path / f"copy-{len(list(tmp_path.iterdir()))}"
    shutil.copytree(data, copy)
    return copy


def test_a_restart_has_what_was_acknowledged(data: Path, tmp_path: Path) -> None:
    with numbers(data) as views:
        views.write("t", insert=[("b", 2)])
        first = crashed(data, tmp_path)
        views.commit({"t": {("b", 3): 1, ("a", 1): -1}})
        second, time, changes = crashed(data, tmp_path), views.time, views.changes("totals", 2)
    for place, expected in ((first, [("a", 1), ("b", 2)]), (second, [("b", 5)]), (data, [("b", 5)])):
        with numbers(place) as again:
            assert rows(again) == expected
            if place != first:
                assert again.time == time and again.changes("totals", 2) == changes
            assert again.write("t", insert=[("z", 9)]) == again.time
            assert ("z", 9) in rows(again)


def test_a_repeated_key_changes_nothing_also_after_a_restart(data: Path, tmp_path: Path) -> None:
    with numbers(data) as views:
        epoch = views.commit({"t": {("b", 2): 1}}, idempotency_key="mine")
        assert views.commit({"t": {("b", 2): 1}}, idempotency_key="mine") == epoch
        with pytest.raises(IdempotencyError, match=f"in epoch {epoch}: give each request a key of its own"):
            views.commit({"t": {("b", 3): 1}}, idempotency_key="mine")
        with pytest.raises(SchemaError):
            views.commit({"t": {("b", "x"): 1}}, idempotency_key="refused")
        views.commit({"t": {("b", 9): 1}}, idempotency_key="refused")  # which left no key
        with pytest.raises(ConfigurationError, match="1 to 256 characters"):
            views.commit({"t": {}}, idempotency_key="x" * 257)
        copy = crashed(data, tmp_path)
    for place in (copy, data):
        with Views(data=place) as again:
            assert again.commit({"t": {("b", 2): 1}}, idempotency_key="mine") == epoch
            assert rows(again) == [("a", 1), ("b", 11)]


class Gate:
    """Holds the log's thread behind an epoch of its own, so that what is begun meanwhile waits together."""

    def __init__(self, views: Views) -> None:
        self._entered, self._open = threading.Event(), threading.Event()
        self._views = views

    def __enter__(self) -> None:
        self._end = self._views.listen(self._wait)
        self._first = self._views.begin_commit({})
        self._entered.wait()

    def _wait(self) -> None:
        self._entered.set()
        self._open.wait()

    def __exit__(self, *_: object) -> None:
        self._end()
        self._open.set()
        self._first.result()


def outcomes(futures: Sequence[Future[int]]) -> list[Any]:
    return [future.exception() or future.result() for future in futures]


def test_requests_that_wait_share_an_epoch_and_see_each_other(data: Path) -> None:
    with numbers(data) as views:
        with Gate(views):
            begun = [
                views.begin_commit({"t": {("b", 1): 1}}, idempotency_key="b"),
                views.begin_commit({"t": {("c", 1): 1}}, idempotency_key="c"),
                views.begin_commit({"t": {("b", 1): 1}}, idempotency_key="b"),
                views.begin_commit({"t": {("b", 1): -1, ("b", 2): 1}}),
                views.begin_commit({"t": {("b", 1): -1}}),
                views.begin_write("t", upsert=[("b", 7), ("d", 3)], key=["k"]),
                views.begin_commit({"t": {("d", 3): -1}}),
            ]
            begun[-1].cancel()
        [one, two, again, three, refused, four] = outcomes(begun[:-1])
        assert (one, two, again, three, four) == (4, 4, 4, 5, 5) and isinstance(refused, DifferenceError)
        assert rows(views, "t") == [("a", 1), ("b", 7), ("c", 1), ("d", 3)]
        assert views.changes("t", 4)[0].changes == [(("b", 1), -1), (("b", 7), 1), (("d", 3), 1)]


def test_groups_are_what_one_request_after_another_would_be(data: Path) -> None:
    chance = random.Random(8)
    alone = Views()
    alone.table("t", "k string, n long", [("a", 1)])
    with numbers(data) as views:
        for _ in range(20):
            expected: list[bool] = []
            begun = []
            with Gate(views):
                for _ in range(chance.randrange(8)):
                    row = (chance.choice("ab"), chance.randrange(2))
                    write: dict[str, Any] = {"insert": [row]}
                    if chance.random() < 0.4:
                        write = {"delete": [row]}
                    elif chance.random() < 0.4:
                        write = {"upsert": [row, ("b", 5)], "key": ["k"]}
                    begun.append(views.begin_write("t", **write))
                    expected.append(alone.begin_write("t", **write).exception() is None)
            assert [future.exception() is None for future in begun] == expected
            assert rows(views, "t") == rows(alone, "t")


def test_a_listener_that_would_wait_for_its_own_change_is_refused(data: Path) -> None:
    refused: list[str] = []

    def change() -> None:
        with pytest.raises(ViewError, match="have another thread change tables") as error:
            views.write("t", insert=[("c", 3)])
        refused.append(str(error.value))

    with numbers(data) as views:
        end = views.listen(change)
        views.write("t", insert=[("b", 2)])
        end()
        assert len(refused) == 1 and rows(views) == [("a", 1), ("b", 2)]


def test_a_second_server_is_refused_by_name(data: Path) -> None:
    with numbers(data) as views:
        with pytest.raises(ConfigurationError, match=f"a server \\(process {os.getpid()} on host .*\\) has '.*data'"):
            Views(data=data)
        views.write("t", insert=[("b", 2)])
    (data / "id").write_text("nonsense")
    with pytest.raises(CheckpointError, match="is damaged: it has no 16 hexadecimal digits"):
        Views(data=data)
    (data / "id").write_text("0123456789abcdef")
    with pytest.raises(CheckpointError, match="are of .*, and it is 0123456789abcdef"):
        Views(data=data)


def test_where_locks_do_not_reach_the_newer_server_fences_the_older(data: Path) -> None:
    with numbers(data) as old:
        old.write("t", insert=[("b", 2)])
        (data / "lock").unlink()  # as on another machine
        with Views(data=data) as new:
            assert rows(new) == [("a", 1), ("b", 2)]
            with pytest.raises(ViewError, match="not known whether this was written: run .* has taken over at"):
                old.write("t", insert=[("lost", 1)])
            with pytest.raises(ViewError, match="nothing was changed: .* has taken over"):
                old.write("t", insert=[("lost", 2)])
            assert rows(old) == [("a", 1), ("b", 2)] and old.broken is not None
            new.write("t", insert=[("c", 3)])
    with Views(data=data) as last:
        assert rows(last) == [("a", 1), ("b", 2), ("c", 3)]


def test_a_full_disk_refuses_writes_and_reads_go_on(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with numbers(data) as views:

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with ViewServer(views, writable=True) as server:
            body = {"insert": [{"k": "b" * 900_000, "n": 2}]}
            with monkeypatch.context() as patched:
                patched.setattr(os, "posix_fallocate", full)
                for _ in range(4):  # what was reserved is used up first
                    assert ask(server.port, "/tables/t", "POST", body).status == 200
                answer = ask(server.port, "/tables/t", "POST", body)
                assert answer.status == 507 and "nothing was changed: [Errno 28]" in answer.content["error"]
                with pytest.raises(DiskFullError):
                    views.write("t", insert=[("b" * 900_000, 2)])
                assert ask(server.port, "/views/totals?k=a").content["rows"] == [{"k": "a", "total": 1}]
                assert ask(server.port, "/tables/t", "POST", {"insert": [{"k": "small", "n": 1}]}).status == 200
            assert ask(server.port, "/tables/t", "POST", body).status == 200
    with Views(data=data) as again:
        assert {k[0]: total for k, total in rows(again)} == {"a": 1, "b": 10, "s": 1}


def test_a_server_starts_on_a_disk_that_is_nearly_full(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with numbers(data):
        pass
    reserve = os.posix_fallocate

    def nearly_full(file: int, begin: int, size: int) -> None:
        if size > 1000:
            raise OSError(errno.ENOSPC, "No space left on device")
        reserve(file, begin, size)

    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", nearly_full)
        with Views(data=data) as views:
            with pytest.raises(DiskFullError):
                views.write("t", insert=[("b", 2)])
            assert rows(views) == [("a", 1)]
            patched.undo()
            views.write("t", insert=[("c", 3)])
    with Views(data=data) as again:
        assert rows(again) == [("a", 1), ("c", 3)]


def test_a_write_that_fails_is_left_out_and_the_next_one_is_not(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with numbers(data) as views:
        sync, failing = os.fdatasync, [True]

        def fail_once(file: int) -> None:
            if failing and failing.pop():
                raise OSError(errno.EIO, "Input/output error")
            sync(file)

        monkeypatch.setattr(os, "fdatasync", fail_once)
        with pytest.raises(ViewError, match="nothing was changed, since the log could not be written: .*Input/output"):
            views.write("t", insert=[("b", 2)])
        epoch = views.write("t", insert=[("c", 3)])
    with Views(data=data) as again:
        assert again.time == epoch and rows(again) == [("a", 1), ("c", 3)]


def test_where_the_log_cannot_go_on_nothing_is_written_and_reads_go_on(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(file: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with numbers(data) as views, ViewServer(views, writable=True) as server:
        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", fail)
            with pytest.raises(ViewError, match="not known whether this was written .*: repeat it with the same key"):
                views.commit({"t": {("b", 2): 1}}, idempotency_key="b")
        answer = ask(server.port, "/tables/t", "POST", {"insert": [{"k": "c", "n": 3}]})
        assert answer.status == 503 and "nothing was changed" in answer.content["error"]
        assert ask(server.port, "/health").content["status"] == "failed"
        assert ask(server.port, "/views/totals").content["rows"] == [{"k": "a", "total": 1}]
    with pytest.raises(ViewError, match="the server has ended: nothing was changed"):
        views.write("t", insert=[("d", 4)])
    with Views(data=data) as again:
        again.commit({"t": {("b", 2): 1}}, idempotency_key="b")
        assert rows(again) == [("a", 1), ("b", 2)]


def test_checkpoints_write_what_has_changed_and_are_read_as_one(data: Path, tmp_path: Path) -> None:
    chance = random.Random(2)
    with Views(Limits(replay_seconds=0.0), data=data) as views:  # a checkpoint after each epoch
        views.table("t", "k string, n long", [("a" * 50, n) for n in range(3000)])
        views.table("u", "k string, n long", [("b" * 50, n) for n in range(3000)])
        for step in range(50):
            if step % 20 == 19:
                views.drop("u")
                views.table("u", "k string, n long", [("c", step)])
            else:
                gone = chance.choice(views.read("t").rows)[0]
                views.commit({"t": [(gone, -1), (("a", step), 1)], "u": [(("u", step), 1)]})
        expected = [rows(views, name) for name in "tu"]
    assert len(list((data / "log").iterdir())) <= 4
    sizes = [path.stat().st_size for path in sorted((data / "state").glob("*.state"))]
    assert sum(10 * size < max(sizes) for size in sizes) > len(sizes) / 2  # most have no rows that were there before
    copy = crashed(data, tmp_path)
    with Views(data=copy) as again:
        assert again.restored is not None and "0 epochs of it by the log" in again.restored
        assert [rows(again, name) for name in "tu"] == expected
    for path in sorted((data / "state").glob("*.state"))[-1:]:
        path.write_bytes(path.read_bytes()[:-1])  # the one before is used, and the log behind it
    with Views(data=data) as again:
        assert ", 0 epochs of it by the log" not in (again.restored or "") and [rows(again, name) for name in "tu"] == expected


@pytest.mark.parametrize("fails", [False, True])
def test_writes_go_on_while_a_checkpoint_is_written(fails: bool, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, written, write = threading.Event(), threading.Event(), LocalStore.write

    def hold_up(store: LocalStore, name: str, chunks: Iterable[bytes]) -> None:
        if name.endswith(".state"):
            begun.set()
            written.wait()
            if fails:
                raise OSError(errno.EIO, "no such luck")
        write(store, name, chunks)

    with Views(Limits(replay_seconds=0.0), data) as views:
        monkeypatch.setattr(LocalStore, "write", hold_up)
        views.table("t", "k string, n long", [("a", 1)])
        begun.wait()
        for n in range(5):
            views.commit({"t": {("b", n): 1}})
        views.drop("t")
        views.table("t", "k string, n long", [("c", 1)])
        views.view("totals", TOTALS)
        views.commit({"t": {("c", 2): 1}})
        written.set()
        monkeypatch.undo()
    with Views(data=data) as again:
        assert rows(again) == [("c", 3)] and ", 0 epochs of it by the log" in (again.restored or "")


KINDS = {
    "sums": "select k, sum(n) as total, count(*) as c, avg(n) as mean from t group by k",
    "extremes": "select k, min(n) as low, max(n) as high, count(distinct n) as d from t group by k",
    "pairs": "select t.k, u.n from t join u on t.n = u.n",
    "outer_pairs": "select t.k, u.k as other from t full join u on t.n = u.n and t.k <> u.k",
    "numbered": "select k, n, row_number() over (partition by k order by n, k) as place, lag(n) over (order by n, k) as l from t",
    "top": "select k, n from t order by n desc, k limit 3",
    "reached": "with recursive r(n) as (select min(n) from t union select u.n + 1 from u join r on u.n = r.n) select n from r",
    "either": "select k from t union select k from u except select k from t where n = 3",
    "absent": "select k, n from t where not exists (select 1 from u where u.n = t.n and u.k = t.k)",
    "above": "select k, total from sums where total > (select avg(total) from sums)",
    "inverse": "select k, 12 // n as m from t",
    "of_it": "select i.k, i.m, s.c from inverse i join sums s on i.k = s.k",
    "constant": "select 1 as one",
}


@pytest.mark.parametrize(("seed", "steps"), [(1, 4), pytest.param(2, 300, marks=pytest.mark.soak)])
def test_a_restart_goes_on_from_the_state_of_views(
    seed: int, steps: int, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all kinds, from checkpoints that are written while epochs go on, and what is remembered is the same.

    Where nothing is behind a checkpoint, nothing is computed.
    """
    chance, write, advance = random.Random(seed), LocalStore.write, Computation.advance
    writing, computed = threading.Event(), list[Any]()

    def held_up(store: LocalStore, name: str, chunks: Iterable[bytes]) -> None:
        if name.endswith(".state"):
            writing.wait()
        write(store, name, chunks)

    def counted(self: Computation, changes: Any, *seconds: float) -> Any:
        computed.append(changes)
        return advance(self, changes, *seconds)

    monkeypatch.setattr(LocalStore, "write", held_up)
    monkeypatch.setattr(Computation, "advance", counted)
    script = "; ".join(["create table t (k varchar, n bigint)", "create table u (k varchar, n bigint)"])
    queries = "; ".join(f"create view {name} as {query}" for name, query in KINDS.items())

    def contents(views: Views, name: str) -> Any:
        try:
            return Counter(dict(views.read(name).rows))
        except ViewError as error:
            return str(error).partition(":")[0]

    whole, limits = Views(), Limits(replay_seconds=0.0)
    views = Views(limits, data)
    for each in (whole, views):
        each.run_script(f"{script}; {queries}")
    first = views.time - whole.time
    for step in range(steps):
        for _ in range(chance.randrange(4)):
            changes: dict[str, Counter[Any]] = {}
            for name in "tu":
                there = [row for row, count in whole.read(name).rows for _ in range(count)]
                changes[name] = Counter((chance.choice("abcd"), chance.randrange(9 if step % 5 else 5)) for _ in range(2))
                changes[name].subtract(chance.sample(there, min(len(there), chance.randrange(4))))
            for each in (whole, views):
                each.commit(changes)
        if chance.random() < 0.1:
            name = chance.choice([*KINDS])
            for each in (whole, views):
                each.view(name, KINDS[name].replace("t.n = u.n", "t.n = u.n + 1") if step % 2 else KINDS[name], replace=True)
        if chance.random() < 0.5:
            ended = chance.random() < 0.7
            if not ended:
                data = crashed(data, tmp_path)
            writing.set()
            views.close()
            writing.clear()
            failing = {name for name in KINDS if isinstance(contents(whole, name), str)}
            computed.clear()
            views = Views(limits, data)
            if ended:
                assert len(computed) <= len(failing) + 1 and "0 epochs of it by the log" in (views.restored or "")
        assert {name: contents(views, name) for name in KINDS} == {name: contents(whole, name) for name in KINDS}
        for name in ("t", "sums", "above"):
            shifted = [(epoch.time - first, sorted(epoch.changes)) for epoch in views.changes(name, first)]
            assert shifted == [(epoch.time, sorted(epoch.changes)) for epoch in whole.changes(name, 0)]
    writing.set()
    views.close()


def test_what_a_view_has_changed_before_it_failed_is_remembered_by_later_checkpoints(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, goes_on, written = LocalStore.write, threading.Event(), set[Path]()

    def held_up(store: LocalStore, name: str, chunks: Iterable[bytes]) -> None:
        if name.endswith(".state"):
            goes_on.wait()
        write(store, name, chunks)

    monkeypatch.setattr(LocalStore, "write", held_up)
    with Views(Limits(replay_seconds=0.0), data) as views:
        views.run_script(
            "create table t (n bigint); create table u (n bigint); create view inverse as select 12 // n as m from t"
        )
        begin = views.time
        views.write("t", insert=[(3,)])
        views.write("t", insert=[(0,)])
        goes_on.set()
        while len(written) < 3:  # one that was begun before, one without a result, and the next one
            views.write("u", insert=[(1,)])
            written.update(data.glob("state/*.manifest"))
        views.write("t", delete=[(0,)])
        changes = views.changes("inverse", begin)
        assert [each.changes for each in changes] == [[((4,), 1)]]
    with Views(data=data) as again:
        assert again.changes("inverse", begin) == changes


def test_a_view_that_fails_is_tried_again_in_the_same_epoch_after_a_crash(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, goes_on, written = LocalStore.write, threading.Event(), set[Path]()

    def held_up(store: LocalStore, name: str, chunks: Iterable[bytes]) -> None:
        if name.endswith(".state"):
            goes_on.wait()
        write(store, name, chunks)

    with Views(data=data) as views:
        views.table("u", "n long")
        views.table("t", "n long", [(n,) for n in range(1, 20_000)])
        views.view("inverse", "select 100 // n as m from t where n < 60")
    monkeypatch.setattr(LocalStore, "write", held_up)
    with Views(Limits(replay_seconds=0.0), data) as views:
        views.write("t", insert=[(0,)])
        views.write("t", insert=[(n,) for n in range(30_000, 30_015)])
        goes_on.set()
        while len(written) < 3:
            views.write("u", insert=[(1,)])
            written.update(data.glob("state/*.manifest"))
        goes_on.clear()
        begin = views.time
        views.write("t", insert=[(50,), *((n,) for n in range(40_000, 40_007))], delete=[(0,)])
        changes = views.changes("inverse", begin)
        copy = crashed(data, tmp_path)
        goes_on.set()
    with Views(data=copy) as again:
        assert again.changes("inverse", begin) == changes


def test_a_view_that_is_right_again_at_a_restart_is_so_at_the_next_one(data: Path) -> None:
    with Views(data=data) as views:
        views.table("t", "k string, n long", [("a", n) for n in range(1, 20_000)])
        views.view("inverse", "select k, 100 // n as m from t where n < 60")
        views.commit({"t": {("z", 0): 1, ("y", 50): 1}})
        with pytest.raises(ViewError, match="division by zero"):
            views.read("inverse")
        views.commit({"t": {("z", 0): -1}})
    for times in range(1, 3):  # the second one goes on from what the first has found out
        with Views(data=data) as again:
            assert ("y", 2) in rows(again, "inverse") and len(rows(again, "inverse")) == 59 + times
            again.commit({"t": {("x", 50): 1}})


@pytest.mark.parametrize("place", [(timely, "__version__", "another"), (trace_state, "FORMAT", 77)])
def test_a_view_whose_state_cannot_be_read_is_computed_anew(
    place: Any, data: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with numbers(data) as views:
        views.run_script(
            "create view pairs as select t.k, o.n from t join t o on t.n = o.n; create view most as select max(n) as n from pairs"
        )
    monkeypatch.setattr(*place)
    for pairs, most, total in (([("a", 1)], 1, 1), ([("a", 1), ("a", 2)], 2, 3)):
        with Views(data=data) as again:
            assert (rows(again, "pairs"), rows(again, "most"), rows(again)) == (pairs, [(most,)], [("a", total)])
            again.commit({"t": {("a", 2): 1}})
    assert ("is computed anew" in caplog.text) is (place[1] == "FORMAT")


def test_a_view_that_does_not_settle_holds_up_neither_epochs_nor_a_restart_for_ever(data: Path, tmp_path: Path) -> None:
    limits = Limits(view_seconds=0.2)
    with Views(limits, data) as views:
        views.table("t", "k string, n long", [("a", 1)])
        views.view("counted", "with recursive r(n) as (select n from t union select n + 1 from r where n <> 5) select n from r")
        views.view("totals", TOTALS)
        views.view("most", "select max(n) as n from counted")
        views.commit({"t": {("b", 6): 1}})
        for place in (views, copied := Views(limits, crashed(data, tmp_path))):
            for name in ("counted", "most"):
                with pytest.raises(ViewError, match=r"took more than 0\.2 s in one epoch"):
                    place.read(name)
            assert rows(place) == [("a", 1), ("b", 6)]
        copied.close()
        views.commit({"t": {("b", 6): -1}})
        with pytest.raises(ViewError, match="took more than"):
            views.read("counted")
        views.view("counted", "select n from t", replace=True)
        assert rows(views, "most") == [(1,)]


def test_a_write_whose_client_has_left_counts_among_those_that_wait(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, begin_write = threading.Event(), Views.begin_write

    def note(views: Views, *arguments: Any, **rows: Any) -> Future[int]:
        future = begin_write(views, *arguments, **rows)
        begun.set()
        return future

    monkeypatch.setattr(Views, "begin_write", note)
    body = b'{"insert": [{"k": "left", "n": 7}]}'
    head = b"POST /tables/t HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    with Views(Limits(waiting=len(body) + 5), data) as views:
        views.table("t", "k string, n long")
        with ViewServer(views, writable=True) as server:
            with Gate(views):
                with socket.create_connection(("127.0.0.1", server.port)) as client:
                    client.sendall(head % len(body) + body)
                    begun.wait()
                answer = ask(server.port, "/tables/t", "POST", {"insert": [{"k": "other", "n": 7}]})
                assert answer.status == 503 and f"{len(body)} bytes wait" in answer.content["error"]
            views.commit({})
            while ask(server.port, "/tables/t", "POST", {"insert": []}).status == 503:
                pass
            assert rows(views, "t") == [("left", 7)]


def test_a_checkpoint_adds_up_the_epochs_since_the_one_before(data: Path) -> None:
    with Views(data=data) as views:
        for name in "tu":
            views.table(name, "k string, n long", [("a", n) for n in range(300)])
    with Views(data=data) as views:
        for diff in (1, 1, -1, 1):
            views.commit({"t": {("x", 0): diff}})
        views.drop("u")
        views.table("u", "k string, n long", [("a", n) for n in range(100)])
        views.commit({"u": {("d", 2): 1}})
        expected = [rows(views, name) for name in "tu"]
    with Views(data=data) as again:
        assert [rows(again, name) for name in "tu"] == expected
        assert expected[0].count(("x", 0)) == 2 and len(expected[1]) == 101


def test_clients_repeat_requests_and_follow_over_a_restart(data: Path, tmp_path: Path) -> None:
    def served(views: Views) -> ViewServer:
        return ViewServer(views, writable=True)

    with numbers(data) as views, served(views) as server:
        with Events(server.port, "/views/totals/changes") as events:
            first = events.next()
            assert first.name == "snapshot" and first.id == f"{views.id}-2"
        body = {"insert": [{"k": "b", "n": 2}]}
        assert ask(server.port, "/tables/t", "POST", body, Idempotency_Key="k").content == {"time": 3}
        ask(server.port, "/tables/t", "POST", {"insert": [{"k": "b", "n": 3}]})
        copy = crashed(data, tmp_path)
    for place in (copy, data):
        with numbers(place) as views, served(views) as server:
            assert ask(server.port, "/tables/t", "POST", body, Idempotency_Key="k").content == {"time": 3}
            other = ask(server.port, "/tables/t", "POST", {"insert": []}, Idempotency_Key="k")
            assert other.status == 422 and "epoch 3" in other.content["error"]
            with Events(server.port, "/views/totals/changes", Last_Event_ID=first.id or "") as events:
                assert [events.next().data["time"] for _ in range(2)] == [3, 4]
            with Events(server.port, "/views/totals/changes", Last_Event_ID="0123456789abcdef-2") as events:
                assert events.next().name == "reset"


def test_files_are_the_truth_of_the_tables_that_follow_them(data: Path, tmp_path: Path) -> None:
    def started(views: Views) -> InputWatcher:
        watcher = InputWatcher(views, [WatchedInput("t", one), WatchedInput("u", folder)])
        views.view("sums", "select t.k, sum(u.n) as n from t join u on t.k = u.k group by t.k")
        return watcher

    one, folder = tmp_path / "t.csv", tmp_path / "u"
    folder.mkdir()
    one.write_text("k,n\na,1\nb,2\n")
    for number in range(3):
        (folder / f"{number}.csv").write_text(f"k,n\na,{number}\nb,7\n")
    with Views(data=data) as views:
        started(views)
        assert rows(views, "sums") == [("a", 3), ("b", 21)]
    one.write_text("k,n\na,1\n")
    (folder / "0.csv").unlink()
    (folder / "1.csv").write_text("k,n\na,100\n")
    with Views(data=data) as views:
        time = views.time
        watcher = started(views)
        assert views.time == time + 1 and rows(views, "sums") == [("a", 102)]
        assert watcher.problems == []
    one.unlink()
    with Views(data=data) as views:
        time = views.time
        watcher = InputWatcher(views, [WatchedInput("t", one, "k string, n long")])
        assert views.time == time and rows(views, "t") == [("a", 1)]  # it may be about to be replaced
        assert "its rows stay" in watcher.problems[0]
        one.write_text("k,n\na,1\nc,3\n")
        watcher.poll()
        watcher.poll()
        assert rows(views, "t") == [("a", 1), ("c", 3)]


def test_a_script_is_applied_as_what_has_changed(data: Path) -> None:
    script = """create table t (k varchar, n bigint);
create view totals as select k, sum(n) as total from t group by k;
create view best as select max(total) as most from totals;
create view gone as select 1 as one;"""
    with Views(data=data) as views:
        views.apply_script(script)
        views.write("t", insert=[("a", 1), ("a", 2)])
        views.view("mine", "select total + 1 as more from totals")
        time = views.time
        assert views.apply_script(script) == time
        assert views.apply_script(script.replace("sum(n)", "\n  sum(n)")) == time + 1  # it is another text
    changed = script.replace("sum(n)", "sum(10 * n)").rpartition("create view")[0]
    with Views(data=data) as views:
        views.apply_script(changed)
        assert rows(views) == [("a", 30)] and rows(views, "best") == [(30,)] and rows(views, "mine") == [(31,)]
        assert [each.name for each in views.overview()[1]] == ["t", "totals", "best", "mine"]
        assert views.changes("totals", views.time - 1)[0].changes == [(("a", 3), -1), (("a", 30), 1)]
        with pytest.raises(SqlError, match="view mine: total"):
            views.apply_script(changed.replace("as total", "as sum").replace("max(total)", "max(sum)"))
        with pytest.raises(ConfigurationError, match="a table or view t already, with other columns"):
            views.apply_script("create table t (k varchar);")
        with pytest.raises(SqlError, match="view mine: totals .*: there is no table totals"):
            views.apply_script("")
        views.run_script("drop view mine")
        views.apply_script("")
        assert rows(views, "t") == [("a", 1), ("a", 2)]
