"""Kafka: a topic as a source, whose positions are offsets, and a compacted topic as a sink, one transaction an epoch.

Positions are the checkpoint's: no consumer group is used. The sink's epochs are in a topic of their own, in the same transaction
as the rows, and its ``transactional.id`` fences an older run.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import monotonic
from typing import Any, Final

import pyarrow as pa

from timely.connect.keyed_rows import KeyedTable, RowsByKey
from timely.connect.protocols import ReadBatch
from timely.connect.record_values import avro_reader, json_reader, json_text, typed_array
from timely.dataflow import declared_schema
from timely.errors import ConnectorError, brief, error_text, require_package

EPOCHS: Final = "timely_sinks"
"""The topic with the epochs of all sinks, compacted by the sinks' names."""

_PATIENCE: Final = 30.0
"""Seconds for an answer of the broker."""
_REFRESH: Final = 10.0
"""Seconds after which new partitions are looked for."""

_OF_RECORD: Final[dict[str, Callable[[Any], Any]]] = {
    "_key": lambda message: None if message.key() is None else message.key().decode(),
    "_timestamp": lambda message: message.timestamp()[1],
    "_partition": lambda message: message.partition(),
    "_offset": lambda message: message.offset(),
    "_headers": lambda message: _headers(message.headers() or []),
}
"""Columns that are not in a record's value."""

_Brokers = str | Mapping[str, Any]


def _settings(brokers: _Brokers, **others: Any) -> dict[str, Any]:
    settings = {"bootstrap.servers": brokers} if isinstance(brokers, str) else dict(brokers)
    return {**settings, **{name.replace("_", "."): value for name, value in others.items()}}


class KafkaSource:
    """Reads a topic of JSON objects: the columns of ``schema`` are their fields, and others are left out.

    ``brokers`` is ``"host:9092,..."``, or settings of librdkafka, with passwords from wherever the program has them. Columns
    named ``_key``, ``_timestamp`` (milliseconds), ``_partition``, ``_offset`` and ``_headers`` (a JSON object) are those of the
    record. With ``keyed`` a record replaces the one of its key before, and a tombstone deletes it, as in a compacted topic. With
    ``debezium`` values are its envelopes, with or without schemas, and the row is the one in ``after``: so records that come
    again are harmless. With ``registry``, settings of Confluent's client (``{"url": ...}``), values are Avro. With ``bounded`` a
    run ends with what is there. Records of aborted transactions are left out. ``ConnectorError`` where offsets are gone, and for
    values that are not of the columns' types. Needs confluent-kafka.
    """

    def __init__(
        self,
        brokers: _Brokers,
        topic: str,
        schema: pa.Schema | str,
        *,
        keyed: bool = False,
        debezium: bool = False,
        registry: Mapping[str, Any] | None = None,
        bounded: bool = False,
        name: str | None = None,
    ) -> None:
        require_package("confluent_kafka", "KafkaSource", "kafka")
        self.name = name or topic
        self.schema = declared_schema(schema, f"source {self.name}")
        self.keyed = keyed or debezium
        self._debezium = debezium
        self.bounded = bounded
        self._topic = topic
        self._brokers = brokers
        self._decode = json_reader(self.schema) if registry is None else avro_reader(registry, topic)
        self._own = [(name, read) for name, read in _OF_RECORD.items() if name in self.schema.names]
        self._client: Any = None
        self._names: list[str] = []
        self._asked = -_REFRESH
        self._next: dict[int, int] = {}  # offsets that the client reads from
        self._arrived: dict[int, deque[Any]] = {}

    def partitions(self) -> list[str]:
        if monotonic() >= self._asked + _REFRESH:
            try:
                with self._consumer() as consumer:
                    topic = consumer.list_topics(self._topic, timeout=_PATIENCE).topics[self._topic]
                    if topic.error is not None:
                        raise ConnectorError(f"source {self.name!r}: topic {self._topic} cannot be read: {topic.error}")
                    self._names = [f"{self._topic}-{number}" for number in sorted(topic.partitions)]
            except ConnectorError:
                if not self._names:  # else a connection is lost, and it is asked again
                    raise
            self._asked = monotonic()
        return self._names

    def start(self, partition: str) -> int:
        return self._offsets(_number(partition))[0]

    def read(self, partition: str, begin: int, rows: int) -> ReadBatch:
        """Return the records that have arrived; the client fetches them on threads of its own."""
        from confluent_kafka import TopicPartition

        number = _number(partition)
        with self._consumer() as consumer:
            if self._next.get(number) != begin:
                self._seek(consumer, number, begin)
            arrived = self._arrived[number]
            if not arrived:
                self._fetch(consumer, rows)
            _, end = consumer.get_watermark_offsets(TopicPartition(self._topic, number), cached=True)
        messages: list[Any] = []
        over = False
        while arrived and len(messages) < rows:
            message = arrived.popleft()
            over = message.error() is not None  # the end of the partition, behind what it has
            if not over:
                messages.append(message)
            self._next[number] = max(begin, message.offset() + (not over))
        lag = end - self._next[number] if end >= 0 else None  # before it is known
        return ReadBatch(self._batch(messages), self._next[number], self.bounded and over, lag)

    def acknowledge(self, positions: Mapping[str, int]) -> None:
        """Nothing: the broker keeps records as long as the topic says."""

    def close(self) -> None:
        client, self._client = self._client, None
        self._next.clear()
        if client is not None:
            with contextlib.suppress(Exception):
                client.close()

    def _offsets(self, number: int) -> tuple[int, int]:
        from confluent_kafka import TopicPartition

        with self._consumer() as consumer:
            oldest, end = consumer.get_watermark_offsets(TopicPartition(self._topic, number), timeout=_PATIENCE)
            return oldest, end

    def _seek(self, consumer: Any, number: int, offset: int) -> None:
        from confluent_kafka import TopicPartition

        if number in self._next:
            consumer.incremental_unassign([TopicPartition(self._topic, number)])
        consumer.incremental_assign([TopicPartition(self._topic, number, offset)])
        self._next[number] = offset
        self._arrived[number] = deque()

    def _fetch(self, consumer: Any, rows: int) -> None:
        from confluent_kafka import KafkaError

        for message in consumer.consume(rows, timeout=0):
            error = message.error()
            if error is None or error.code() == KafkaError._PARTITION_EOF:
                self._arrived[message.partition()].append(message)
            elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                number = message.partition()
                oldest, end = self._offsets(number)
                raise ConnectorError(
                    f"source {self.name!r}: partition {number} of topic {self._topic} has the offsets {oldest} to {end}, and"
                    f" {self._next[number]} is wanted: what lies between is lost. Start anew with an empty folder of checkpoints"
                )
            else:
                raise ConnectorError(f"source {self.name!r}: topic {self._topic}: {error}")

    def _batch(self, messages: Sequence[Any]) -> Any:
        """Return records as Arrow rows; of a topic with keys as pairs of a key and a row, ``None`` for a tombstone."""
        if not messages:
            return ()
        try:
            records = [self._fields(message) for message in messages]
            fields = [each for each in records if each is not None]
            arrays = [typed_array([each.get(field.name) for each in fields], field) for field in self.schema]
        except Exception as error:
            if len(messages) > 1:
                for message in messages:
                    self._batch([message])  # which raises for one of them
            message = messages[0]
            raise ConnectorError(
                f"source {self.name!r}: partition {message.partition()} of {self._topic}, offset {message.offset()}: its value is"
                f" not read as {', '.join(self.schema.names)}: {error}"
            ) from error
        if not self.keyed:
            return pa.record_batch(arrays, schema=self.schema)
        rows = zip(*(array.to_pylist() for array in arrays))
        return [(message.key(), None if each is None else next(rows)) for message, each in zip(messages, records)]

    def _fields(self, message: Any) -> Any:
        """Return the values of a record by their names; ``None`` where it deletes a row."""
        value = message.value()
        if (message.key() if self.keyed else value) is None:
            raise ValueError(f"the record has no {'key' if self.keyed else 'value: keyed=True takes tombstones'}")
        if value is None:
            return None
        fields = self._decode(value)
        if self._debezium and (fields := fields.get("payload", fields)["after"]) is None:
            return None
        if not isinstance(fields, dict):
            raise TypeError(f"{brief(fields)} is no object")
        for name, read_record in self._own:
            fields[name] = read_record(message)
        return fields

    @contextlib.contextmanager
    def _consumer(self) -> Iterator[Any]:
        from confluent_kafka import Consumer, KafkaException

        try:
            if self._client is None:
                self._client = Consumer(
                    {
                        "enable.auto.commit": False,
                        "auto.offset.reset": "error",
                        "enable.partition.eof": True,
                        "fetch.wait.max.ms": 50,  # for the end of a partition; records come at once
                        "isolation.level": "read_committed",
                        "group.id": "timely",  # which is not used
                        **_settings(self._brokers),
                    }
                )
            yield self._client
        except KafkaException as error:
            raise ConnectorError(f"source {self.name!r}: Kafka: {error_text(error)}") from error


class KafkaSink(KeyedTable):
    """Keeps a compacted topic equal to a view whose rows differ in ``key``: records for rows, tombstones for those that went.

    Keys and values are JSON: one key column is its value, several are an object, as the row is. An epoch is one transaction, with
    its number in the topic ``timely_sinks``, which should have one partition and be compacted. ``name`` is the
    ``transactional.id``. Consumers set ``isolation.level`` to ``read_committed``. Needs confluent-kafka.
    """

    def __init__(self, brokers: _Brokers, topic: str, *, key: str | Sequence[str], name: str | None = None) -> None:
        require_package("confluent_kafka", "KafkaSink", "kafka")
        super().__init__(topic, key, name, "Kafka")
        self._place = f"topic {topic}"
        self._topic = topic
        self._brokers = brokers
        self._line: tuple[str, int | None] | None = None  # the history and the epoch of the last commit, while it is open
        self._producer: Any = None

    def open(self, history: str, columns: Sequence[str] | None) -> int | None:
        """Fence older runs, and return the last epoch that was committed."""
        self._line = None
        return super().open(history, columns)

    def close(self) -> None:
        """Give up the transaction that is under way, if there is one."""
        self._producer = None

    def _last(self, producer: Any) -> tuple[str, int | None]:
        return self._line or ("", None)

    def _claim(self, producer: Any) -> None:
        self._line = self._history, self._last(producer)[1]

    def _write(self, producer: Any, epoch: int, rows: RowsByKey) -> None:
        producer.begin_transaction()
        for key in rows.deletes:
            self._produce(self._topic, key=self._key_text(key), value=None)
        for key, row in [*rows.updates.items(), *rows.inserts.items()]:
            self._produce(self._topic, key=self._key_text(key), value=json_text(dict(zip(self._columns, row))))
        self._produce(EPOCHS, key=self.name, value=json_text({"history": self._history, "epoch": epoch}), partition=0)
        producer.commit_transaction(_PATIENCE)
        self._line = self._history, epoch

    def _key_text(self, key: tuple[Any, ...]) -> str:
        return json_text(key[0] if len(key) == 1 else dict(zip(self._key, key)))

    def _produce(self, topic: str, **record: Any) -> None:
        while True:
            try:
                self._producer.produce(topic, **record)
            except BufferError:  # until the client has sent some
                self._producer.poll(1)
            else:
                return

    def _committed(self) -> tuple[str, int | None]:
        """Return the history and the epoch of the last commit."""
        source = KafkaSource(self._brokers, EPOCHS, "history string, epoch long", keyed=True, bounded=True, name=self.name)
        last: tuple[str, int | None] | None = None
        try:
            partition = source.partitions()[0]
            place, over, waited = source.start(partition), False, monotonic() + _PATIENCE
            while not over:
                batch, place, over, _ = source.read(partition, place, 1000)
                last = next((row for key, row in reversed(batch) if key == self.name.encode()), last)
                if monotonic() > waited:
                    raise ConnectorError(f"sink {self.name!r}: topic {EPOCHS} is not read in {_PATIENCE:.0f} seconds")
        finally:
            source.close()
        return last or ("", None)  # it has a tombstone where somebody begins anew

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Any]:
        from confluent_kafka import KafkaError, KafkaException, Producer

        try:
            if self._line is None:
                self._producer = Producer(_settings(self._brokers, transactional_id=self.name))
                self._producer.init_transactions(_PATIENCE)
                self._producer.list_topics(EPOCHS, timeout=_PATIENCE)  # makes it where brokers may
                self._line = self._committed()
            if self._producer is None:
                raise ConnectorError(f"sink {self.name!r}: a commit has failed: let the next run open it again")
            yield self._producer
        except KafkaException as error:
            self._producer = None
            code = error.args[0].code()
            if code in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED):
                raise ConnectorError(
                    f"sink {self.name!r}: another run has opened topic {self._topic} since: end this one"
                ) from error
            raise ConnectorError(f"sink {self.name!r}: topic {self._topic}: {error_text(error)}") from error


def _headers(pairs: Sequence[tuple[str, bytes | None]]) -> str:
    headers = {name: None if value is None else value.decode() for name, value in pairs}
    if len(headers) < len(pairs):
        raise ValueError(f"a header is there twice, in {brief(pairs)}")
    return json_text(headers)


def _number(partition: str) -> int:
    return int(partition.rpartition("-")[2])
