"""A broker: librdkafka's mock cluster takes transactions, but neither fences nor hides aborted records."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import confluent_kafka

from timely.connect import KafkaSource

QUIET = {"log_level": 0}


class Cluster:
    """A broker: where it is, and what a test does there."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.settings = {"bootstrap.servers": where, **QUIET}
        self.producer = confluent_kafka.Producer(self.settings)
        self.names = 0

    def topic(self) -> str:
        """A new topic, which the broker makes when it is asked for."""
        self.names += 1
        return f"topic{self.names}"

    def produce(self, topic: str, *records: tuple[str | None, Any], partitions: int = 1) -> None:
        for number, (key, value) in enumerate(records):
            text = value if value is None or isinstance(value, str) else json.dumps(value)
            self.producer.produce(topic, key=key, value=text, partition=number % partitions)
        assert self.producer.flush(20) == 0

    def rows(self, topic: str, schema: str) -> list[Any]:
        """The last rows of the keys of a topic, without tombstones."""
        source = KafkaSource(self.settings, topic, schema, keyed=True, bounded=True)
        values: dict[Any, Any] = {}
        with contextlib.closing(source):
            for partition in source.partitions():
                values.update(read_until_over(source, partition))
        return sorted(value for value in values.values() if value is not None)


def read_until_over(source: KafkaSource, partition: str, place: int = 0) -> list[Any]:
    """What a bounded source reads from a place on: rows, or pairs of a key and a row."""
    rows: list[Any] = []
    over = False
    while not over:
        batch, place, over, _ = source.read(partition, place, 10)
        rows += batch if source.keyed or not batch else [tuple(row.values()) for row in batch.to_pylist()]
    return rows


@contextlib.contextmanager
def mock_cluster() -> Iterator[Cluster]:
    broker = confluent_kafka.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none", **QUIET})
    [place] = broker.list_topics(timeout=20).brokers.values()
    yield Cluster(f"{place.host}:{place.port}")
    del broker
