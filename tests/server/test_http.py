"""The server over HTTP: reads, what clients follow, queries, writes, and who may ask."""

from __future__ import annotations

import contextlib
import datetime
import gc
import http.client
import json
import random
import re
import select
import shutil
import socket
import subprocess
import threading
import time
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import duckdb
import pyarrow as pa
import pytest

import timely
from tests.server.client import Event, Events, ask
from timely import TimelyWarning
from timely import differential as dd
from timely.errors import ViewError
from timely.server import Limits, RowCondition, Views, ViewServer

ORDERS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("customer", pa.string()), ("price", pa.int64())])
TOTALS = "select customer, sum(price) as total from orders group by customer"


class Served:
    """Views, and the server of them."""

    def __init__(self, limits: Limits | None = None, **options: Any) -> None:
        self.views = Views(limits)
        self.views.table("orders", ORDERS, [(1, "ada", 30), (2, "bob", 5), (3, "ada", 12)])
        self.views.view("totals", TOTALS)
        self.server = ViewServer(self.views, **options)
        self.port = self.server.port


@pytest.fixture
def served() -> Iterator[Served]:
    result = Served(writable=True)
    with result.server:
        yield result


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 600
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def rows(data: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in data["rows"])


def changes(event: Event) -> list[tuple[Any, ...]]:
    assert event.name == "changes"
    return [(each["count"], *each["row"].values()) for each in event.data["changes"]]


# -- reading ---------------------------------------------------------------------------------------------------------------


def test_the_list_of_views(served: Served) -> None:
    served.views.commit({"orders": {(4, "eve", 1): 1}})
    answer = ask(served.port, "/views").content
    assert answer["time"] == 1 and answer["writable"] is True
    assert [(each["name"], each["kind"], each["rows"]) for each in answer["views"]] == [
        ("orders", "table", 4),
        ("totals", "view", 3),
    ]
    assert answer["views"][0]["columns"][0] == {"name": "id", "type": "BIGINT", "nullable": False}
    assert answer["views"][1]["query"] == TOTALS


def test_points_and_ranges(served: Served) -> None:
    def read(query: str) -> list[tuple[Any, ...]]:
        return rows(ask(served.port, f"/views/orders?{query}").content)

    assert read("customer=ada") == [(1, "ada", 30), (3, "ada", 12)]
    assert read("customer=ada&price=12") == [(3, "ada", 12)]
    assert read("price.gte=12&price.lt=30") == [(3, "ada", 12)]
    assert read("id.gt=1&id.lte=2") == [(2, "bob", 5)]
    assert read("customer.null=true") == []
    answer = ask(served.port, "/views/orders?limit=2")
    assert len(answer.content["rows"]) == 2 and answer.content["more"] is True
    assert answer.content["time"] == 0 and answer.headers["Timely-Time"] == "0" and answer.content["view"] == "orders"
    assert ask(served.port, "/views/Totals?customer=bob").content["rows"] == [{"customer": "bob", "total": 5}]
    served.views.view("nested", "select [id, null] as l, {'a': id, 'd': 1.5::decimal(9, 2)} as s from orders")
    for row in ask(served.port, "/views/nested").content["rows"]:
        path = "/views/nested?" + urlencode({name: json.dumps(value) for name, value in row.items()})  # as the page asks
        assert ask(served.port, path).content["rows"] == [row] and ask(served.port, "/views/nested?l=x").status == 400


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("/views/order", 404, "there is no table or view order: there are orders, totals; did you mean orders?"),
        ("/query?sql=select*from+order_s", 400, "no table order_s; there are: orders, totals; did you mean orders?"),
        ("/query?sql=select+cast(1+as+varchr)", 400, "no type varchr here; did you mean varchar?"),
        ("/views/orders?custmer=1", 400, "no column 'custmer': there are id, customer, price; did you mean customer?"),
        ("/views/orders?id=x", 400, "'id' is BIGINT: 'x' is not a whole number"),
        ("/views/orders?id.gt=1.5", 400, "'1.5' is not a whole number"),
        ("/views/orders?id.like=x", 400, "id.gte"),
        (f"/views/orders?id={'9' * 5000}", 400, "'id' is BIGINT"),
        (f"/views/orders?limit={'9' * 5000}", 400, "whole number"),
        ("/views/orders?limit=-1", 400, "limit=-1: give a whole number"),
        ("/views/orders/changes?from=7", 410, "after epoch 7"),
        ("/views/orders/changes?from=now", 400, "whole number"),
        ("/views/orders?limit=1&limit=2", 400, "limit is there 2 times: give it once"),
        ("/views/orders/changes?from=0&from=1", 400, "from is there 2 times"),
        ("/nope", 404, "Not Found; there are /, /views, /views/NAME, /query"),
    ],
)
def test_what_cannot_be_read_is_an_error_with_its_reason(served: Served, path: str, status: int, message: str) -> None:
    answer = ask(served.port, path)
    assert answer.status == status and message in answer.content["error"]


def test_arrow(served: Served) -> None:
    answer = ask(served.port, "/views/totals", Accept="application/vnd.apache.arrow.stream")
    table = pa.ipc.open_stream(answer.content).read_all()
    assert table.schema.field("total").type == pa.int64() and table.schema.metadata == {b"time": b"0", b"more": b"false"}
    assert sorted(table.to_pydict()["total"]) == [5, 42]
    served.views.commit({"orders": {(9, "big", (1 << 63) - 1): 1, (10, "big", (1 << 63) - 1): 1}})
    too_large = ask(served.port, "/views/totals", Accept="application/vnd.apache.arrow.stream")
    assert too_large.status == 400 and "ask for JSON" in too_large.content["error"]
    assert str(2 * ((1 << 63) - 1)) in [row["total"] for row in ask(served.port, "/views/totals").content["rows"]]


def test_values_of_all_types_come_and_go_as_json() -> None:
    schema = pa.schema(
        [
            ("b", pa.bool_()),
            ("n", pa.int64()),
            ("x", pa.float64()),
            ("d", pa.decimal128(20, 2)),
            ("s", pa.string()),
            ("day", pa.date32()),
            ("at", pa.timestamp("us")),
        ]
    )
    row = (
        True,
        1 << 60,
        float("inf"),
        Decimal("1.50"),
        "é\n",
        datetime.date(2020, 1, 31),
        datetime.datetime(2020, 1, 31, 12, 30),
    )
    views = Views()
    views.table("t", schema, [row, (None,) * 7])
    with ViewServer(views, writable=True) as server:
        first, second = (
            ask(server.port, "/views/t?b=true").content["rows"],
            ask(server.port, "/views/t?b.null=true").content["rows"],
        )
        assert first == [
            {"b": True, "n": str(1 << 60), "x": "inf", "d": "1.50", "s": "é\n", "day": "2020-01-31", "at": "2020-01-31T12:30:00"}
        ]
        assert second == [dict.fromkeys(["b", "n", "x", "d", "s", "day", "at"])]
        options = {**first[0], "x": 0.5}
        assert ask(server.port, "/tables/t", "POST", {"delete": second, "insert": [options]}).content == {"time": 1}
        assert views.read("t").rows == [(row, 1), ((*row[:2], 0.5, *row[3:]), 1)]
        for condition in ("n=1152921504606846976", "x=0.5", "d=1.5", "day=2020-01-31", "at=2020-01-31%2012:30:00"):
            assert ask(server.port, f"/views/t?{condition}").content["rows"] != []


def test_values_that_are_made_of_others() -> None:
    pair = pa.struct([("day", pa.date32()), ("n", pa.int64())])
    schema = pa.schema([("days", pa.list_(pa.date32())), ("pair", pair), ("raw", pa.binary()), ("at", pa.timestamp("us", "UTC"))])
    day, at = datetime.date(2020, 1, 31), datetime.datetime(2020, 1, 31, 12, tzinfo=datetime.UTC)
    row = ((day, None), (day, 7), b"\x00a", at)
    views = Views()
    views.table("t", schema, [row, (None, None, None, None)])
    views.view("unpacked", "select pair.n as n, len(days) as days from t where raw is not null")
    with ViewServer(views, writable=True) as server:
        [answer] = ask(server.port, "/views/t?raw.null=true").content["rows"]
        assert answer == {"days": None, "pair": None, "raw": None, "at": None}
        assert len(ask(server.port, "/views/t?days.null=true").content["rows"]) == 1
        [answer] = ask(server.port, "/views/t?at=2020-01-31T12:00:00%2B00:00").content["rows"]
        assert answer["days"] == ["2020-01-31", None] and answer["pair"] == {"day": "2020-01-31", "n": 7}
        assert ask(server.port, "/views/t?days=2020-01-31").status == 400
        changed = {**answer, "pair": {"day": None, "n": 8}}
        assert ask(server.port, "/tables/t", "POST", {"delete": [answer], "insert": [changed]}).content == {"time": 1}
        assert dict(views.read("t").rows) == {(*row[:1], (None, 8), *row[2:]): 1, (None,) * 4: 1}
        assert ask(server.port, "/views/unpacked").content["rows"] == [{"n": 8, "days": 2}]
        assert ask(server.port, "/tables/t", "POST", {"insert": [{"pair": {"x": 1}}]}).status == 400
        arrow = ask(server.port, "/views/t", Accept="application/vnd.apache.arrow.stream").content
        assert {"n": 8, "day": None} in pa.ipc.open_stream(arrow).read_all().to_pydict()["pair"]


# -- following -------------------------------------------------------------------------------------------------------------


def test_a_client_that_comes_back_misses_and_repeats_nothing(served: Served) -> None:
    with Events(served.port, "/views/totals/changes") as events:
        last = events.next().id
        served.views.commit({"orders": {(4, "ada", 1): 1}})
        last = events.next().id
    served.views.commit({"orders": {(5, "ada", 1): 1}})
    served.views.commit({"orders": {(6, "ada", 1): 1}})
    assert last is not None
    with Events(served.port, "/views/totals/changes", Last_Event_ID=last) as events:
        assert [changes(events.next()) for _ in range(2)] == [
            [(-1, "ada", 43), (1, "ada", 44)],
            [(-1, "ada", 44), (1, "ada", 45)],
        ]
        served.views.commit({"orders": {(7, "ada", 1): 1}})
        assert changes(events.next()) == [(-1, "ada", 45), (1, "ada", 46)]
    with Events(served.port, "/views/totals/changes?from=3") as events:
        assert changes(events.next()) == [(-1, "ada", 45), (1, "ada", 46)]


@pytest.mark.parametrize("last", ["{run}-0", "{run}-99", "other-3", "nonsense", "{run}-x", "{run}-" + "9" * 5000])
def test_a_client_that_cannot_resume_must_start_over(last: str) -> None:
    served = Served(Limits(epochs=2))
    with served.server:
        with Events(served.port, "/views/totals/changes") as events:
            run = (events.next().id or "").split("-")[0]
        for order in range(4, 8):
            served.views.commit({"orders": {(order, "ada", 1): 1}})
        with Events(served.port, "/views/totals/changes", Last_Event_ID=last.format(run=run)) as events:
            reset, snapshot = events.next(), events.next()
            assert reset.name == "reset" and "not remembered" in reset.data["reason"] and reset.id is None
            assert snapshot.name == "snapshot" and snapshot.data["time"] == 4 and rows(snapshot.data) == [("ada", 46), ("bob", 5)]


def test_a_slow_client_is_dropped_and_holds_nobody_up() -> None:
    served = Served(Limits(epochs=3))
    with served.server, Events(served.port, "/views/orders/changes") as quick:
        quick.next()
        slow = socket.create_connection(("127.0.0.1", served.port))
        slow.sendall(b"GET /views/orders/changes HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_until(lambda: ask(served.port, "/health").content["subscribers"] == 2)
        text = "x" * 200_000  # more than the system holds back for the client
        for epoch in range(20):
            base = 10 + 5 * epoch
            served.views.commit({"orders": {(base + n, text, 1): 1 for n in range(5)}})
            assert quick.next().data["time"] == epoch + 1
        slow.settimeout(20)
        received = b""
        while not received.endswith(b"0\r\n\r\n"):
            received += slow.recv(1 << 20)
        slow.close()
        assert received.count(b"event: changes") < 20
        assert b"event: dropped" in received.split(b"event: changes")[-1] and b"too slowly" in received


@pytest.mark.parametrize("path", ["/views/orders", "/views/orders/changes"])
def test_server_6_a_client_that_takes_nothing_is_disconnected(path: str) -> None:
    served = Served(Limits(patience=0.2))
    served.views.commit({"orders": {(n, "x" * 1_000_000, 1): 1 for n in range(10, 40)}})  # more than the system holds back
    with served.server, socket.create_connection(("127.0.0.1", served.port)) as client:
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        gone = select.poll()
        gone.register(client, select.POLLHUP)
        assert gone.poll()
        wait_until(lambda: ask(served.port, "/health").content["subscribers"] == 0)


@pytest.mark.parametrize(
    "begin", ["", "GET /health HTTP/1.1\r\nHost: ", "POST /query HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"]
)
def test_server_5_a_client_that_sends_no_whole_request_is_disconnected(begin: str) -> None:
    served = Served(Limits(patience=0.2))
    with served.server, socket.create_connection(("127.0.0.1", served.port)) as client:
        client.sendall(begin.encode())
        answer = client.recv(1 << 16)
        assert (b" 408 " in answer and b"0.2 s" in answer) if "POST" in begin else answer == b""


def test_an_epoch_or_a_view_that_is_too_large_is_not_sent() -> None:
    served = Served(Limits(rows=4))
    with served.server, Events(served.port, "/views/orders/changes") as events:
        events.next()
        served.views.commit({"orders": {(n, "x", n): 1 for n in range(10, 20)}})
        [last] = events.rest()
        assert last.name == "dropped" and "epoch 1 has more than 4 changes" in last.data["reason"]
        refused = ask(served.port, "/views/orders/changes")
        assert refused.status == 413 and "orders has more than 4 rows" in refused.content["error"]
        refused = ask(served.port, "/query", "POST", "select * from orders")
        assert refused.status == 400 and "the query has more than 4 rows" in refused.content["error"]
        with Events(served.port, "/views/orders/changes?id.lt=3") as few:
            assert len(rows(few.next().data)) == 2
    wait_until(lambda: served.views.queries == 0)


def test_a_client_catches_up_over_more_changes_than_one_event_may_have() -> None:
    served = Served(Limits(rows=4))
    with served.server:
        for epoch in range(1, 6):
            served.views.commit({"orders": {(10 * epoch + n, "x", epoch): 1 for n in range(3)}})
        with Events(served.port, "/views/orders/changes?from=0") as events:
            for epoch in range(1, 6):
                event = events.next()
                assert event.data["time"] == epoch
                assert sorted(changes(event)) == [(1, 10 * epoch + n, "x", epoch) for n in range(3)]


def test_no_more_subscribers_than_the_limit() -> None:
    served = Served(Limits(subscribers=1))
    with served.server, Events(served.port, "/views/orders/changes"):
        refused = ask(served.port, "/views/orders/changes")
        assert refused.status == 503 and "follow already" in refused.content["error"]


def test_a_view_that_fails_says_so_and_goes_on_when_it_can(served: Served) -> None:
    served.views.view("inverse", "select customer, 100 // total as n from totals")
    with Events(served.port, "/views/inverse/changes") as events:
        assert rows(events.next().data) == [("ada", 2), ("bob", 20)]
        served.views.commit({"orders": {(4, "bob", -5): 1}})
        error = events.next()
        assert error.name == "error" and "division by zero" in error.data["error"] and error.id is None
        assert ask(served.port, "/views/inverse").status == 503
        health = ask(served.port, "/health").content
        assert health["status"] == "degraded" and "division by zero" in health["errors"][0]
        served.views.commit({"orders": {(4, "bob", -5): -1, (5, "bob", 5): 1}})
        assert sorted(changes(events.next())) == [(-1, "bob", 20), (1, "bob", 10)]
    assert ask(served.port, "/health").content["status"] == "ok"


def test_the_end_of_the_server_ends_what_clients_follow() -> None:
    served = Served()
    with Events(served.port, "/views/orders/changes") as events:
        events.next()
        served.server.close()
        assert [each.name for each in events.rest()] == ["dropped"]
    served.server.close()


# -- queries ---------------------------------------------------------------------------------------------------------------


def test_a_query_lives_as_long_as_its_client(served: Served) -> None:
    with Events(served.port, "/query", "POST", {"sql": "select count(*) as n from totals where total > 10"}) as one:
        assert rows(one.next().data) == [(1,)]
        with Events(served.port, "/query", "POST", "select max(total) as m from totals") as other:
            assert rows(other.next().data) == [(42,)]
            served.views.commit({"orders": {(4, "bob", 50): 1}})
            assert changes(one.next()) == [(-1, 1), (1, 2)] and changes(other.next()) == [(-1, 42), (1, 55)]
            assert served.views.queries == 2
        wait_until(lambda: served.views.queries == 1)
        served.views.commit({"orders": {(4, "bob", 50): -1}})
        assert changes(one.next()) == [(-1, 2), (1, 1)]
    wait_until(lambda: served.views.queries == 0)


def test_queries_that_lag_hold_up_no_read(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    read, waiting, caught_up = Views.read, threading.Semaphore(0), threading.Event()

    def lag(views: Views, name: str, *arguments: Any) -> Any:
        if name.startswith("query-"):
            waiting.release()
            caught_up.wait()
        return read(views, name, *arguments)

    def follow() -> None:
        with Events(served.port, "/query", "POST", {"sql": "select count(*) as n from orders"}) as events:
            assert rows(events.next().data) == [(3,)]

    monkeypatch.setattr(Views, "read", lag)
    clients = [threading.Thread(target=follow) for _ in range(5)]
    for client in clients:
        client.start()
    try:
        assert all(waiting.acquire(timeout=60) for _ in clients)
        assert ask(served.port, "/views/orders").status == 200
        for path in ("/views/query-1", "/views/query-1/changes"):
            assert ask(served.port, path).status == 404
    finally:
        caught_up.set()
    for client in clients:
        client.join()


def test_a_query_that_is_read_once(served: Served) -> None:
    answer = ask(served.port, "/query", "POST", "select total from totals where customer = 'ada'", Accept="application/json")
    assert answer.content["rows"] == [{"total": 42}] and answer.content["time"] == 0
    answer = ask(served.port, "/query", "POST", "select 1 as one", Accept="application/vnd.apache.arrow.stream")
    assert pa.ipc.open_stream(answer.content).read_all().to_pylist() == [{"one": 1}]
    wait_until(lambda: served.views.queries == 0)


@pytest.mark.parametrize(
    ("body", "status", "expected"),
    [
        ("select nope from orders", 400, {"line": 1, "column": 8}),
        ("select *\nfrom orders where", 400, {"line": 2}),
        ("drop table orders", 400, {}),
        ("select 1 // (total - 5) as n from totals", 503, {}),
        ("", 400, {}),
        ({"sql": 7}, 400, {}),
        ("select " + "(" * 5000 + "1" + ")" * 5000 + " as n", 400, {}),
        ("select " + "1 + " * 6000 + "1 as n", 400, {}),
        (["select 1 as n"], 400, {}),
        ({"sql": "select 1 as n", "ordered": True}, 400, {}),
        ({"sql": "select 1 as n", "order": "yes"}, 400, {}),
    ],
)
def test_a_query_that_is_wrong(served: Served, body: Any, status: int, expected: dict[str, int]) -> None:
    answer = ask(served.port, "/query", "POST", body)
    assert answer.status == status and answer.content["error"]
    assert expected.items() <= answer.content.items()
    assert served.views.queries == 0 and len(ask(served.port, "/views/orders").content["rows"]) == 3


@pytest.mark.parametrize(
    ("method", "address", "body", "message"),
    [
        ("GET", "sql=select+1&sql=select+2", None, "sql is there 2 times"),
        ("GET", "sql=select+1&order=true&order=false", None, "order is there 2 times"),
        ("GET", "sql=select+1&order=yes", None, "'order': 'yes'"),
        ("GET", "sql=select+1", "select 2", "a GET has the query in its address"),
        ("GET", "sql=drop+table+orders", None, "a view is a query, not DROP"),
        ("POST", "order=true", "select 1", "a POST in its body alone"),
    ],
)
def test_an_address_of_a_query_is_read_whole(served: Served, method: str, address: str, body: Any, message: str) -> None:
    answer = ask(served.port, f"/query?{address}", method, body)
    assert answer.status == 400 and message in answer.content["error"]


def test_a_query_that_fails_later_ends_with_an_error(served: Served) -> None:
    with Events(served.port, "/query", "POST", "select 1 // (total - 7) as n from totals") as events:
        events.next()
        served.views.commit({"orders": {(4, "bob", 2): 1}})
        [last] = events.rest()
        assert last.name == "error" and "division by zero" in last.data["error"]
    assert rows(ask(served.port, "/views/totals").content) == [("ada", 42), ("bob", 7)]
    wait_until(lambda: served.views.queries == 0)


def test_a_client_that_leaves_while_its_query_starts_leaves_nothing() -> None:
    served = Served(Limits(query_seconds=1.0))
    with served.server:
        slow = "with recursive r(n) as (select 1 union select n + 1 from r) select n from r"
        connection = http.client.HTTPConnection("127.0.0.1", served.port)
        connection.request("POST", "/query", slow.encode())
        wait_until(lambda: served.views.queries == 1)
        connection.close()
        assert len(ask(served.port, "/views/orders").content["rows"]) == 3  # reads do not wait
        wait_until(lambda: served.views.queries == 0)


# -- writing ---------------------------------------------------------------------------------------------------------------


def test_rows_are_written(served: Served) -> None:
    def write(**body: Any) -> Any:
        return ask(served.port, "/tables/orders", "POST", body)

    assert write(
        insert=[{"id": 4, "customer": "eve", "price": 1}], delete=[{"id": 2, "customer": "bob", "price": 5}]
    ).content == {"time": 1}
    assert rows(ask(served.port, "/views/totals").content) == [("ada", 42), ("eve", 1)]
    upserts = [{"id": 4, "price": 7}, {"id": 4, "customer": "eve", "price": 8}, {"id": 5, "customer": "ada", "price": 1}]
    assert write(upsert=upserts, key=["id"]).content == {"time": 2}
    assert rows(ask(served.port, "/views/totals").content) == [("ada", 43), ("eve", 8)]
    refusals: list[tuple[dict[str, Any], int]] = [
        ({"delete": [{"id": 9, "customer": "x", "price": 1}]}, 409),
        ({"insert": [{"id": None, "customer": "x", "price": 1}]}, 400),
        ({"insert": [{"id": 1.5, "customer": "x", "price": 1}]}, 400),
        ({"insert": [{"id": 1, "nope": 1}]}, 400),
        ({"insert": [[1, "x", 1]]}, 400),
        ({"upsert": [{"id": 1}]}, 400),
        ({"upsert": [{"id": 1}], "key": ["nope"]}, 400),
        ({"upsert": [{"id": 1}], "key": ["id"], "insert": [{"id": 1}]}, 400),
        ({"remove": []}, 400),
    ]
    for body, status in refusals:
        refused = write(**body)
        assert refused.status == status and refused.content["error"], (body, refused)
    assert ask(served.port, "/tables/totals", "POST", {"insert": [{"customer": "x", "total": 1}]}).status == 400
    assert ask(served.port, "/tables/nope", "POST", {"insert": []}).status == 404
    assert ask(served.port, "/tables/orders", "POST", '{"insert": []}').status == 415
    assert ask(served.port, "/tables/orders", "POST", "{", Content_Type="application/json").status == 400
    assert ask(served.port, "/tables/orders", "POST", '{"insert": ' + "[" * 10_000, Content_Type="application/json").status == 400
    for number in ("9" * 5000, "1e999999999", "1.5"):
        text = f'{{"insert": [{{"id": {number}}}]}}'
        assert ask(served.port, "/tables/orders", "POST", text, Content_Type="application/json").status == 400
    assert ask(served.port, "/tables/orders", "POST", "{}", Content_Type="application/json; charset=nope").status == 400
    assert ask(served.port, "/tables/orders", "POST", '{"insert": [{"id": NaN}]}', Content_Type="application/json").status == 400
    assert served.views.time == 2


def test_a_server_is_read_only_by_default() -> None:
    served = Served(Limits(body=100))
    with served.server:
        refused = ask(served.port, "/tables/orders", "POST", {"insert": []})
        assert refused.status == 403 and "--writable" in refused.content["error"] and served.views.time == 0
        assert ask(served.port, "/query", "POST", "select " + "1 + " * 100 + "1 as n").status == 413


# -- who may ask -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:{port}"}, 200),
        ({"Host": "127.0.0.1:{port}", "Origin": "http://127.0.0.1:{port}", "Sec_Fetch_Site": "same-origin"}, 200),
        ({"Host": "[::1]:{port}"}, 200),
        ({"Host": "views.example:{port}"}, 200),
        ({"Host": "evil.example:{port}"}, 403),
        ({"Host": "evil.example:{port}", "Origin": "http://evil.example:{port}"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Host": "localhost.evil.example"}, 403),
        ({"Host": ""}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_Fetch_Site": "same-site"}, 403),
    ],
)
def test_pages_of_other_sites_read_nothing(headers: dict[str, str], status: int) -> None:
    served = Served(names=["views.example"], writable=True)
    options = {name: value.format(port=served.port) for name, value in headers.items()}
    with served.server:
        page = ask(served.port, "/", **options)
        answers = [
            ask(served.port, "/views/orders", **options),
            ask(served.port, "/tables/orders", "POST", {"insert": [{"id": 4}]}, **options),
            ask(served.port, "/query", "POST", "select 1 as n", Accept="application/json", **options),
        ]
    assert [answer.status for answer in answers] == [status] * 3
    assert page.status == (200 if "Sec_Fetch_Site" in headers else status)  # a link may lead to the page
    for answer in [page, *answers]:
        assert "Access-Control-Allow-Origin" not in answer.headers
        assert (
            answer.headers["X-Content-Type-Options"] == "nosniff"
            and "default-src 'none'" in answer.headers["Content-Security-Policy"]
        )
    assert served.views.time == (status == 200)


# -- the page --------------------------------------------------------------------------------------------------------------


def test_the_page_loads_nothing_from_elsewhere(served: Served) -> None:
    page = ask(served.port, "/")
    text = page.content.decode()
    assert page.status == 200 and page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "http://" not in text and "https://" not in text and "innerHTML" not in text


@pytest.mark.skipif(shutil.which("node") is None, reason="runs the page's script in Node")
def test_the_page_shows_results_that_change(served: Served) -> None:
    page = files("timely.server").joinpath("page", "page.html")
    script = Path(__file__).with_name("page_in_node.js")
    with Served(limits=Limits(rows=2)).server as small:
        for arguments in ([served.server.url, page], [small.url, page, "large"]):
            done = subprocess.run(["node", script, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)
            assert done.stdout == "fine\n", done.stderr
    page_text = page.read_text("utf-8")
    for file in re.findall(r'(?:src|href)="(/[^"]+)"', page_text):  # all that it loads is of this server
        assert ask(served.port, file).status == 200
    assert "//" not in "".join(re.findall(r'(?:src|href)="([^"]+)"', page_text))
    assert ask(served.port, "/page/other.js").status == 404


# -- all of it -------------------------------------------------------------------------------------------------------------


def test_what_clients_put_together_is_what_is_read(served: Served) -> None:
    chance = random.Random(5)
    served.views.view("pairs", "select o.id, t.total from orders o join totals t on o.customer = t.customer")
    paths = ["/views/pairs/changes", "/views/totals/changes", "/views/orders/changes?price.gte=3"]
    held: list[Counter[tuple[Any, ...]]] = [Counter() for _ in paths]
    streams = [Events(served.port, path) for path in paths]
    last: list[str] = [""] * len(paths)
    try:
        for step in range(30):
            if step:
                row = (chance.randrange(1000), chance.choice(["ada", "bob", None]), chance.randrange(6))
                gone = chance.choice(list(served.views.read("orders").rows))[0]
                served.views.commit({"orders": [(row, 1), (gone, -1)]})
            for number, path in enumerate(paths):
                if chance.random() < 0.3 and last[number]:
                    streams[number].close()
                    streams[number] = Events(served.port, path, Last_Event_ID=last[number])
                if chance.random() < 0.3 and step < 29:
                    continue  # it reads later
                name = path.split("/")[2]
                where = [RowCondition(2, "gte", 3)] if name == "orders" else []
                expected = Counter(dict(served.views.read(name, where).rows))
                while held[number] != expected:
                    event = streams[number].next()
                    last[number] = event.id or last[number]
                    if event.name == "snapshot":
                        held[number] = Counter(tuple(row.values()) for row in event.data["rows"])
                        continue
                    for count, *values in changes(event):
                        held[number][tuple(values)] += count
                    held[number] = Counter({row: count for row, count in held[number].items() if count})
    finally:
        for stream in streams:
            stream.close()


CHAIN = {
    "inverse": "select k, 12 // n as m from t where k <> 'c'",
    "sums": "select k, sum(n) as n, count(*) as c from t group by k",
    "of_both": "select s.k, s.n, i.m from sums s left join inverse i on s.k = i.k",
    "ratio": "select k, c // (n - 3) as r from sums",
    "most": "select max(r) as r from ratio",
}


@pytest.mark.parametrize(("seed", "epochs"), [(2, 10), pytest.param(3, 200, marks=pytest.mark.soak)])
def test_clients_of_many_threads_follow_views_of_which_some_fail(seed: int, epochs: int) -> None:
    """Each has, at each epoch that it is sent, the rows that new views compute."""
    chance, views, expected = random.Random(seed), Views(), dict[tuple[str, int], Counter[Any] | None]()
    views.table("t", "k string, n long", [("a", 1)])
    views.run_script(";".join(f"create view {name} as {query}" for name, query in CHAIN.items()))

    def follow(name: str, stream: Events, sent: list[tuple[str, int, Counter[Any]]]) -> None:
        time, held = 0, Counter[Any]()
        while time <= epochs:
            event = stream.next()
            if event.name != "error":
                time = event.data["time"]
                for change in event.data.get("changes", [{"count": 1, "row": row} for row in event.data.get("rows", [])]):
                    held[tuple(change["row"].values())] += change["count"]
                sent.append((name, time, Counter({row: count for row, count in held.items() if count})))

    with ViewServer(views) as server, contextlib.ExitStack() as streams:
        followers, received = list[threading.Thread](), [list[tuple[str, int, Counter[Any]]]() for _ in range(2 * len(CHAIN))]
        for name, sent in zip([*CHAIN] * 2, received):
            stream = streams.enter_context(Events(server.port, f"/views/{name}/changes"))
            followers.append(threading.Thread(target=follow, args=(name, stream, sent)))
            followers[-1].start()
        for epoch in range(epochs + 2):
            there, last = list(views.read("t").rows), epoch > epochs
            come = (
                [("z", n) for n in (1, 1, 1, 2, -1)] if last else [(chance.choice("abc"), chance.randrange(5)) for _ in range(2)]
            )
            difference = Counter(come)
            difference.subtract(dict(there if last else chance.sample(there, len(there) // 2)))
            if epoch:  # the last one changes all views, of which none fails then
                views.commit({"t": difference})
            fresh = Views()
            fresh.table("t", "k string, n long", [row for row, count in views.read("t").rows for _ in range(count)])
            for name, query in CHAIN.items():
                try:
                    fresh.view(name, query)
                    expected[name, epoch] = Counter(dict(fresh.read(name).rows))
                except ViewError:
                    expected[name, epoch] = None
        for follower in followers:
            follower.join()
    assert all(rows == expected[name, time] for sent in received for name, time, rows in sent)
    assert all(sent[0][1] == 0 and sent[-1][1] == epochs + 1 for sent in received)
    assert epochs // 2 < sum(rows is None for rows in expected.values()) < 4 * epochs


def test_views_go_with_their_last_reference_once_the_server_has_closed() -> None:
    served = Served()
    with served.server:
        assert ask(served.port, "/views/totals").status == 200 and ask(served.port, "/nothing").status == 404
    alive = weakref.ref(served.views)
    del served
    gc.unfreeze()
    gc.collect()
    assert alive() is None


# -- order: that of ORDER BY, as DuckDB has it; views have none, and say so ------------------------------------------------

PEOPLE = [("ada", 3, None), ("bob", 1, 2.5), ("eve", 2, 0.5), ("Ann", 3, 1.5), ("bob", 1, 2.5), (None, 5, 4.0)]
PERSON = pa.schema([("who", pa.string()), ("n", pa.int64()), ("x", pa.float64())])


@pytest.fixture(scope="module")
def people() -> Iterator[int]:
    views = Views(Limits(rows=5))
    views.table("t", PERSON, PEOPLE)
    with ViewServer(views) as server:
        yield server.port


def ordered(people: int, query: str) -> Any:
    return ask(people, "/query", "POST", query, Accept="application/json")


ORDERED = [
    "select who, n from t where who is not null and n > 1 order by n desc, who",
    "select who from t where n > 1 order by n, x",
    "select who as n from t where n > 1 order by n desc",
    "select who as w from t where n > 1 order by upper(w) || 'z' desc",
    "select * from t where n < 4 and x > 0 order by x desc nulls first, n",
    "select who, -n as n from t where n > 1 order by abs(n), (n), who",
    "select *, upper(who) as who from t where n < 3 order by who, n",
    "select who, sum(n) from t group by who order by sum(n) desc, 1",
    "select who, sum(n) as s from t group by all order by max(x) desc nulls last, s",
    "select distinct n from t order by n desc",
    "(select n from t where n > 2) union all (select 7) order by 1 desc",
    "select who, n from t where n between 2 and 4 order by all",
    "select who from t order by n desc, who limit 3",
    "with a as (select who, n + 1 as m from t where n > 1) select a.who from a order by a.m desc, a.who",
    "select t.who, (select count(*) from t u where u.n < t.n) as c from t where n > 1 order by t.n + 1 desc, who",
]


@pytest.mark.parametrize("query", ORDERED)
def test_an_answer_is_in_the_order_that_duckdb_has(people: int, query: str) -> None:
    result = ordered(people, query)
    assert result.status == 200, result.content
    t = pa.table(list(zip(*PEOPLE, strict=True)), schema=PERSON)
    assert t.num_rows == len(PEOPLE)
    assert [tuple(row.values()) for row in result.content["rows"]] == duckdb.execute(query).fetchall()
    assert not result.content["more"]


def test_a_bounded_answer_has_the_first_rows(people: int) -> None:
    result = ordered(people, "select n, who from t order by n desc, who").content
    assert [row["n"] for row in result["rows"]] == [5, 3, 3, 2, 1] and result["more"]
    result = ordered(people, "select n from t order by n").content
    assert [row["n"] for row in result["rows"]] == [1, 1, 2, 3, 3] and result["more"]


@pytest.mark.parametrize(
    ("query", "column", "why"),
    [
        ("select distinct n from t order by n + 1", 35, "select this too"),
        ("select n from t union select 1 order by n + 1", 41, "select this too"),
        ("select who, count(*) from t group by all order by n", 51, "next to aggregates it must stand in GROUP BY"),
    ],
)
def test_an_order_by_what_is_not_there_is_refused(people: int, query: str, column: int, why: str) -> None:
    result = ordered(people, query)
    assert result.status == 400 and (result.content["line"], result.content["column"]) == (1, column)
    assert why in result.content["error"]


def test_a_view_says_that_it_has_no_order() -> None:
    message = r"a view has no order: ORDER BY at line 1, column 17 has no effect without LIMIT; sort when you read"
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            t = dd.table(scope, pa.table({"n": [2, 1]}))
            with pytest.warns(TimelyWarning, match=f"^{message}") as shown:
                dd.sql(scope, "select n from t order by n", t=t).output()
            with warnings.catch_warnings(action="error"):
                dd.sql(scope, "select n from t order by n limit 1", t=t).output()
                dd.sql(scope, "select distinct on (n) n from t order by n", t=t).output()
        worker.run()
    assert [one.filename for one in shown] == [__file__]
    views = Views()
    views.table("t", PERSON, PEOPLE)
    with pytest.warns(TimelyWarning, match=f"^view sorted: {message}"):
        views.view("sorted", "select n from t order by n")
