"""What strangers send: the server answers afterwards, and nothing of it is left (``server-2`` to ``server-7``).

With ``-m soak`` the attacks run against default options, and times and sizes are bounded too.
"""

from __future__ import annotations

import random
import socket
import string
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.server.attacks import ATTACKS, QUERIES, Server, clients, drip, holding, query
from tests.server.client import Events, ask

LOOP = "loop without end"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    options = ("--query-seconds", "3600", "--query-memory", "200MB", "--max-queries", "4", "--writable")
    served = Server(tmp_path_factory.mktemp("served"), *options, files=128, rows=5000)
    yield served
    status, _ = served.end()
    assert status == 0 and len(served.log.read_text().splitlines()) == 1, served.log.read_text()


def answers(server: Server) -> bool:
    """Whether the server has no query left, and computes a new one."""
    health = server.health()
    return health["status"] == "ok" and query("select count(*) as n from orders")(server).startswith("200")


@pytest.mark.parametrize("name", [name for name in QUERIES if name != LOOP])
def test_a_query_is_answered_or_refused(server: Server, name: str) -> None:
    answer = query(QUERIES[name])(server)
    assert answer[:3] in ("200", "400", "503") and "cannot be planned" not in answer
    assert answers(server)


@pytest.mark.parametrize("name", ["cross join", "large result"], ids=["server_3", "server_4"])
def test_a_query_ends_at_its_memory_and_leaves_nothing(server: Server, name: str) -> None:
    for _ in range(2):
        answer = query(QUERIES[name])(server)
        assert answer.startswith("503") and "the query needs more than " in answer, answer
        assert answers(server)


def test_server_2_server_7_a_query_ends_after_its_seconds(tmp_path: Path) -> None:
    server = Server(tmp_path, "--query-seconds", "0.5", rows=100)
    for name in (LOOP, "500 CTEs"):  # which is planned longer than that
        answer = query(QUERIES[name])(server)
        assert answer.startswith("503") and "took longer than 0.5 s" in answer, answer
        assert server.health()["queries"] == 0
    assert server.end()[0] == 0


@pytest.mark.parametrize(
    "attack",
    [
        holding(10, b"GET /views/events HTTP/1.1\r\nHost: localhost\r\n\r\n", seconds=0.1),
        drip(20, b"POST /query HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\n", b"x", seconds=0.3),
        *(ATTACKS[name] for name in ("broken requests", "compressed bodies", "2,000 conditions of a URL")),
    ],
    ids=["server_6", "slow", "broken", "compressed", "conditions"],
)
def test_clients_do_not_keep_others_out(server: Server, attack: Callable[[Server], str]) -> None:
    server.run(attack)
    assert answers(server)


def test_server_5_whoever_comes_is_let_in_while_half_open_connections_stay(server: Server) -> None:
    with clients(server, 160, b"", b"GET /health HTTP/1.1\r\nHost: "):
        assert answers(server)


def test_a_client_that_leaves_takes_its_query_along(server: Server) -> None:
    body = QUERIES[LOOP].encode()
    for _ in range(8):  # more than may run
        with clients(server, 1, b"POST /query HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)):
            while server.health()["queries"] == 0:
                pass
        while server.health()["queries"]:
            pass
    for _ in range(30):  # they are gone before the request has been read
        with clients(server, 1, b"POST /query HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)):
            pass
    while server.health()["queries"]:
        pass


def test_sigterm_ends_the_server_whatever_it_does(tmp_path: Path) -> None:
    server = Server(tmp_path, rows=100)
    body = QUERIES[LOOP].encode()
    request = b"POST /query HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    with clients(server, 3, request, b"GET /views/events/changes HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET"):
        assert server.end()[0] == 0


def test_sigterm_ends_the_server_while_an_epoch_does_not_end(tmp_path: Path) -> None:
    loop = "create view looping as with recursive r(n) as (select key from written union select n + 1 from r) select n from r;"
    server = Server(tmp_path, "--writable", "--query-seconds", "0.5", rows=100, script=loop)
    body = b'{"insert": [{"key": 1}]}'
    head = b"POST /tables/written HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    with clients(server, 1, head % len(body) + body):
        assert server.health()["time"] == 0
        assert query("select count(*) as n from orders")(server).startswith("503")  # it would wait for the epoch
        assert server.end()[0] == 0


def test_server_8_texts_and_keys_that_cannot_be_are_refused(server: Server) -> None:
    def write(body: str) -> tuple[int, str]:
        answer = ask(server.port, "/tables/written", "POST", body, Content_Type="application/json")
        return answer.status, answer.content.get("error", "")

    refused = [
        ('{"insert": [{"key": 1, "text": "\\ud800"}]}', "column 'text': '\\ud800' is no value of VARCHAR"),
        ('{"insert": [{"key": 1, "text": 5}]}', "column 'text'"),
        ('{"insert": [{"key": 1, "key": 2}]}', "twice"),
        ('{"upsert": [{"key": 1, "text": "a"}], "key": 5}', "key is a list of columns of table written (key, text), not 5"),
        ('{"upsert": [{"key": 1, "text": "a"}], "key": {"key": 1}}', "key is a list of columns"),
        ('{"upsert": [{"key": 1, "text": "a"}], "key": [["key"]]}', "key is a list of columns"),
        ('{"upsert": [{"key": {"a": 1}, "text": "a"}], "key": ["key"]}', "column 'key'"),
        ('{"upsert": [{"key": true, "text": "a"}], "key": ["key"]}', "column 'key'"),
        ('{"upsert": {"key": 1}, "key": ["key"]}', "'upsert' is a list of objects"),
        ('{"insert": [{"key": NaN}]}', "NaN is no JSON"),
        ('{"insert": [{"key": Infinity}]}', "Infinity is no JSON"),
        ('{"insert": [{"key": 1e400}]}', "column 'key'"),
        (f'{{"insert": [{{"key": {1 << 63}}}]}}', "column 'key'"),
    ]
    for body, message in refused:
        status, error = write(body)
        assert status == 400 and message in error, (body, status, error)
    assert ask(server.port, "/views/written?text=%ED%A0%80").status in (200, 400)
    assert write('{"insert": [{"key": 1, "text": "\\ud83d\\ude00"}]}')[0] == 200
    arrow = ask(server.port, "/views/written", Accept="application/vnd.apache.arrow.stream")
    assert arrow.status == 200 and "\U0001f600".encode() in arrow.content


def test_server_1_rows_of_a_query_are_in_its_order(server: Server) -> None:
    text = "select id from events order by amount desc, id limit 5"
    answer = ask(server.port, "/query", "POST", {"sql": text, "order": True}, Accept="application/json").content["rows"]
    expected = sorted(range(5000), key=lambda n: (-(n * 7919 % 10007), n))[:5]
    assert [row["id"] for row in answer] == expected
    with Events(server.port, "/query", "POST", {"sql": text, "order": True}) as events:
        data = events.next().data
    assert data["shown"] == 1 and [column["name"] for column in data["columns"]] == ["id", "order 0"]
    assert data["order"] == [
        {"column": "order 0", "descending": True, "nulls_first": False},
        {"column": "id", "descending": False, "nulls_first": False},
    ]
    with Events(server.port, "/query", "POST", text) as events:
        assert sorted(row["id"] for row in events.next().data["rows"]) == sorted(expected)


def request(chance: random.Random, sql: list[str]) -> bytes:
    """A request: of a query with characters changed, left out or repeated, or of something else."""
    text = list(chance.choice(sql))
    for _ in range(chance.randrange(6)):
        place = chance.randrange(len(text))
        text[place : place + chance.randrange(9)] = chance.choices([*string.printable, *"é\0\ud83d"], k=chance.randrange(4))
    body = "".join(text).encode("utf-8", "replace")
    kind = chance.choice(["application/json", "text/event-stream", "application/vnd.apache.arrow.stream", "*/*"])
    if chance.random() < 0.7:
        head = f"POST /query HTTP/1.1\r\nHost: localhost\r\nAccept: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body
    path = chance.choice(
        ["/", "/health", "/views", "/views/events?limit=3&amount.gte=5", "/views/totals/changes?from=0", "/views/nope"]
    )
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {kind}\r\n\r\n".encode()


SOME = [
    "select kind, sum(amount) as total from events group by cube(kind, id % 3) order by total desc limit 7",
    "select e.id, o.customer from events e left join orders o on e.id = o.id where e.kind like '%a_' or o.id in (1, 2)",
    "with recursive r(n) as (select 1 union select n * 2 from r where n < 1000) select n, repeat('x', n) as t from r",
    "select id, row_number() over (partition by kind order by amount) as n, cast(amount as varchar) || '!' as t from events",
    "select regexp_replace(kind, '(a|b)+', 'x', 'g') as k, date '2024-02-29' + interval 1 day as d from events where id < 9",
]


@pytest.mark.parametrize("seed", [1, 2])
def test_the_server_survives_what_is_nearly_a_request(server: Server, seed: int) -> None:
    survive(server, random.Random(seed), 50)


def survive(server: Server, chance: random.Random, count: int) -> None:
    """Send requests, some of them broken, and see that each is answered, the broken ones perhaps."""
    for _ in range(count):
        content = bytearray(request(chance, SOME))
        broken = chance.random() < 0.3
        for _ in range(3 * broken):
            place = chance.randrange(len(content))
            content[place : place + chance.randrange(4)] = chance.randbytes(chance.randrange(4))
        with socket.create_connection(("127.0.0.1", server.port), timeout=600) as client:
            client.sendall(content)
            if broken:
                client.shutdown(socket.SHUT_WR)
            answer = client.recv(1 << 16)
        assert answer[9:12] in STATUSES or (broken and not answer), (content, answer)
        assert b"cannot be planned" not in answer, (content, answer)
    assert answers(server)


STATUSES = [b"200", b"400", b"403", b"404", b"405", b"408", b"410", b"413", b"415", b"503"]


@pytest.mark.soak
def test_no_attack_keeps_the_server_from_answering(tmp_path: Path, cover: Callable[[int, str], None]) -> None:
    server = Server(tmp_path, "--writable", files=1024)
    for name, attack in ATTACKS.items():
        result = server.run(attack)
        assert result.slowest < 2, (name, result)
        assert result.server < 600, (name, result)
        cover(1, "attacks")
    status, seconds = server.end()
    assert status == 0 and seconds < 5 and server.log.stat().st_size < 1000, server.log.read_text()


@pytest.mark.soak
def test_the_server_survives_for_as_long_as_one_likes(
    tmp_path: Path, soak_seconds: float, cover: Callable[[int, str], None]
) -> None:
    server = Server(tmp_path, "--query-seconds", "5", rows=2000)
    end, count = time.monotonic() + soak_seconds, 0
    while time.monotonic() < end:
        survive(server, random.Random(), 50)
        count += 50
    cover(count, "requests")
    assert server.end()[0] == 0


@pytest.mark.soak
def test_followers_stay_right_and_memory_flat_while_clients_vanish(
    tmp_path: Path, soak_seconds: float, cover: Callable[[int, str], None]
) -> None:
    """50 clients follow, and 1,000 come and vanish, while another one writes: with data on disk, and without."""
    for options in ((), ("--data", str(tmp_path / "data"))):
        folder = tmp_path / f"served-{len(options)}"
        folder.mkdir()
        server = Server(folder, "--writable", *options, files=1024, rows=2000)
        slowest, memory = follow_and_vanish(server, soak_seconds / 4)
        cover(int(slowest * 1e6), f"microseconds took 99 of 100 writes at most {' '.join(options[:1]) or 'without --data'}")
        assert max(memory[len(memory) // 2 :]) < 1.1 * max(memory[: len(memory) // 2]) + 10, memory
        assert server.end()[0] == 0


def follow_and_vanish(server: Server, seconds: float) -> tuple[float, list[float]]:
    """Return how long 99 of 100 writes took at most, and the memory of the server from time to time."""
    end, held = time.monotonic() + seconds, [Counter[Any]() for _ in range(50)]
    last, latencies, memory, chance = 1 << 40, list[float](), list[float](), random.Random(5)

    def follow(rows: Counter[Any]) -> None:
        with Events(server.port, "/views/written/changes") as events:
            while (last, "last") not in rows:
                event = events.next()
                assert event.name in ("snapshot", "changes"), event
                for change in event.data.get("changes", [{"count": 1, "row": row} for row in event.data.get("rows", [])]):
                    rows[change["row"]["key"], change["row"]["text"]] += change["count"]

    def write(key: int, text: str) -> None:
        begun = time.monotonic()
        answer = ask(server.port, "/tables/written", "POST", {"upsert": [{"key": key, "text": text}], "key": ["key"]})
        latencies.append(time.monotonic() - begun)
        assert answer.status == 200, answer

    def vanish() -> None:
        for _ in range(1000):
            content = chance.choice(
                [request(chance, SOME), b"GET /views/written/changes HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GE"]
            )
            with suppress(OSError), clients(server, 1, content):
                time.sleep(seconds / 1500)

    threads = [threading.Thread(target=follow, args=(rows,)) for rows in held] + [threading.Thread(target=vanish)]
    for thread in threads:
        thread.start()
    while time.monotonic() < end or threads[-1].is_alive():
        write(chance.randrange(100), "x" * chance.randrange(200))
        if len(latencies) % 50 == 0:
            memory.append(server.memory()[0])
    write(last, "last")
    for thread in threads:
        thread.join()
    expected = Counter((row["key"], row["text"]) for row in ask(server.port, "/views/written").content["rows"])
    assert all(+rows == expected for rows in held)
    return sorted(latencies)[len(latencies) * 99 // 100], memory
