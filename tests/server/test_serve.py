"""``timely serve``, as somebody would type it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.server.client import Events, ask
from timely.cli import main

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """create view totals as
select customer, sum(price) as total from orders group by customer;
create view best as select customer, total from totals order by total desc limit 1;
"""


@contextmanager
def served(*arguments: Any, printed: list[str] | None = None, last: str = "") -> Iterator[int]:
    """Yield the port of a command that runs; ``printed`` gets its lines, and is waited for until one ends with ``last``."""
    command = [sys.executable, "-m", "timely.cli", "serve", "--port", "0", "--poll", "0.05", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            lines, result = [], None
            while result is None:
                lines.append(process.stdout.readline())
                result = re.search(r"http://127\.0\.0\.1:([0-9]+)/", lines[-1])
                assert lines[-1], "".join(lines) + process.stderr.read()
            yield int(result[1])
            while not lines[-1].rstrip().endswith(last):
                lines.append(process.stdout.readline())
                assert lines[-1]
            process.send_signal(signal.SIGTERM)
            assert process.wait(600) == 0 and process.stderr.read() == ""
            if printed is not None:
                printed += [line.rstrip().replace(result[1], "PORT") for line in (*lines, *process.stdout)]
        finally:
            process.kill()


def wait_for_status(port: int, status: str) -> None:
    end = time.monotonic() + 600
    while ask(port, "/health").content["status"] != status:
        assert time.monotonic() < end


def test_views_follow_a_file(tmp_path: Path) -> None:
    (tmp_path / "views.sql").write_text(SCRIPT + "create view sorted as select total from totals order by total;")
    path, own = tmp_path / "orders.csv", tmp_path / "own_functions.py"
    path.write_text("customer,price\nada,30\nbob,5\n")
    own.write_text("from timely import differential as dd\nloud = dd.function(str.upper, returns='varchar')\n")
    received: list[str] = []
    arguments = tmp_path / "views.sql", "--input", f"orders={path}", "--functions", own
    with served(*arguments, printed=received, last="read again") as port:
        assert ask(port, "/views/best").content["rows"] == [{"customer": "ada", "total": 30}]
        with (
            Events(port, "/views/best/changes") as events,
            Events(port, "/query", "POST", "select sum(total) as s from totals where loud(customer) <> ''") as query,
        ):
            assert events.next().data["time"] == 0 and query.next().data["rows"] == [{"s": 35}]
            path.write_text("customer,price\nada,30\nbob,50\n")
            event = events.next()
            assert event.name == "changes" and event.data == {
                "time": 1,
                "changes": [
                    {"count": -1, "row": {"customer": "ada", "total": 30}},
                    {"count": 1, "row": {"customer": "bob", "total": 50}},
                ],
            }
            assert query.next().data["changes"][1] == {"count": 1, "row": {"s": 80}}
        path.write_text("customer,price\nada,thirty\n")
        wait_for_status(port, "degraded")
        assert "thirty" in ask(port, "/health").content["errors"][0]
        assert ask(port, "/views/best").content["rows"] == [{"customer": "bob", "total": 50}]
        path.write_text("customer,price\neve,1\n")
        with Events(port, "/views/best/changes", Last_Event_ID=event.id or "") as events:
            assert events.next().data["changes"][1]["row"] == {"customer": "eve", "total": 1}
        wait_for_status(port, "ok")  # a file counts as applied after its epoch, so shortly after the event
        assert ask(port, "/tables/orders", "POST", {"insert": []}).status == 403
    assert [re.sub(r"'/.*?'", "FILE", line) for line in received] == [
        "timely: view sorted: a view has no order: ORDER BY at line 4, column 48 has no effect without LIMIT; sort when you read",
        "serving 4 tables and views at http://127.0.0.1:PORT/",
        "timely: input orders: FILE cannot be read as csv: column 'price' is int64, and line 2 has 'thirty':"
        ' create table orders (..., "price" string, ...) in a script such as views.sql reads it as text',
        "timely: input orders: read again",
    ]


@pytest.mark.parametrize(
    ("script", "arguments", "message"),
    [
        (None, [], "the script 'views.sql' cannot be read"),
        (None, ["orders.csv"], "'orders.csv' is no script: write --input NAME=orders.csv"),
        ("create view v as\nselect nope from orders", ["--input", "orders=orders.csv"], "nope at line 2, column 8"),
        ("select 1", ["--input", "orders=orders.csv"], "a script has `create view"),
        ("", ["--input", "orders=order.csv"], "input orders: there is no file 'order.csv'; did you mean orders.csv?"),
        ("", ["--input", "orders=orders.csv", "--changes", "order"], "there is no input of that name; did you mean orders?"),
        ("create view orders as select 1 as n", ["--input", "orders=orders.csv"], "a table or view orders already"),
        ("", ["--input", "orders=orders.csv", "--port", "TAKEN"], "; try --port "),
        ("", ["--input", "orders=orders.csv", "--host", "256.1.1.1", "--port", "1"], "cannot be served there"),
    ],
)
def test_mistakes_end_the_command_with_a_message(
    script: str | None,
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orders.csv").write_text("customer,price\nada,30\n")
    if script is not None:
        (tmp_path / "views.sql").write_text(script)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        script_or_data = [] if arguments == ["orders.csv"] else ["views.sql"]
        assert main(["serve", *script_or_data, *(port if each == "TAKEN" else each for each in arguments)]) == 1
    assert message in capsys.readouterr().err


def test_an_input_without_a_name_gets_one_in_the_message(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "views.sql", "--input", "data/my-orders.csv.gz"])
    assert "'data/my-orders.csv.gz' has no name: write my_orders=data/my-orders.csv.gz" in capsys.readouterr().err


def test_what_clients_write_stays_in_a_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script, data = tmp_path / "views.sql", tmp_path / "data"
    script.write_text("create table orders (customer varchar, price bigint);\n" + SCRIPT)
    command = (script, "--writable", "--data", data)
    with served(*command) as port:
        reply = ask(port, "/tables/orders", "POST", {"insert": [{"customer": "ada", "price": 3}]}, Idempotency_Key="a")
        assert reply.content == {"time": 2}
        assert main(["serve", *map(str, command), "--port", "0"]) == 1
    assert "timely: a server (process " in capsys.readouterr().err
    printed: list[str] = []
    with served(*command[1:], printed=printed) as port:  # without the script its views stay
        assert ask(port, "/views/best").content["rows"] == [{"customer": "ada", "total": 3}]
        again = ask(port, "/tables/orders", "POST", {"insert": [{"customer": "ada", "price": 3}]}, Idempotency_Key="a")
        assert again.content == {"time": 2}
    assert printed[0] == f"timely: {data}: epoch 2 was restored, 0 epochs of it by the log"
