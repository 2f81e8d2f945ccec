"""Exactly once: files that come into a folder, a view, and a table of SQLite, with processes that are killed in between.

Each day's orders are a file. Two processes keep the table ``totals`` equal to a query over all files. On the first day the
process that writes is killed just before it writes what a checkpoint holds. On the second it is killed just after, before
anything has noted the write. The next run goes on, and each order counts once.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import timely
from timely import connect
from timely import differential as dd

QUERY = "select item, sum(amount) as amount, count(*) as orders from sold group by item"
ITEMS = ("bolt", "nut", "screw")


class KilledSink(connect.SqliteSink):
    """A sink whose process is killed ``when`` it writes."""

    when = ""

    def commit(self, epoch: int, changes: Sequence[connect.Change]) -> None:
        if self.when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        super().commit(epoch, changes)
        if self.when == "after":
            os.kill(os.getpid(), signal.SIGKILL)


def program(worker: timely.Worker, folder: Path, when: str) -> None:
    """Bring the table up to date with the files."""
    with timely.Recovery(worker, folder / "checkpoints") as recovery:
        with worker.dataflow(int) as scope:
            sold = dd.table(scope, connect.FolderSource(folder / "sold", "item string, amount long", bounded=True))
            sink = KilledSink(folder / "totals.db", "totals", key="item")
            sink.when = when
            dd.sql(scope, QUERY, sold=sold).write(sink)
        connect.run(recovery)


def main() -> None:
    """Run day after day."""
    choice = random.Random(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "sold").mkdir()
        with contextlib.closing(sqlite3.connect(folder / "totals.db", isolation_level=None)) as database:
            database.execute("create table totals (item text primary key, amount int, orders int)")
            database.execute("create table sold (item text, amount int)")  # to compare with
            for day, kill in enumerate(("before", "after")):
                rows = [(choice.choice(ITEMS), choice.randint(1, 99)) for _ in range(1000)]
                database.executemany("insert into sold values (?, ?)", rows)
                draft = folder / "sold" / f"_{day}.csv"
                draft.write_text("item,amount\n" + "".join(f"{item},{amount}\n" for item, amount in rows))
                draft.rename(folder / "sold" / f"{day}.csv")
                for when in (kill, ""):
                    try:
                        timely.execute(partial(program, folder=folder, when=when), processes=2)
                        print(f"day {day}: complete")
                    except timely.TimelyError as error:
                        print(f"day {day}: killed {when} it wrote ({type(error).__name__})")
                equal = sorted(database.execute("select * from totals")) == sorted(database.execute(QUERY))
                print(f"day {day}: the table is {'equal to' if equal else 'DIFFERENT from'} the query over all orders")


if __name__ == "__main__":
    main()
