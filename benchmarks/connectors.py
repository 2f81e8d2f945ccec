"""Records of Kafka counted by key: processor seconds of this library, and of bytewax and pathway, for the same topic.

The broker is librdkafka's mock cluster, in this process. Each contestant is a process of its own. It reads JSON to the end of the
topic, and says how many records there are of each key. What it takes for a topic of one record is subtracted.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from subprocess import Popen

import confluent_kafka

from benchmarks.environments import Unavailable, python_with
from benchmarks.measure import Measured
from benchmarks.report import Row

KEYS = 1000
PARTITIONS = 4

TIMELY = """
import timely
from timely import connect, differential as dd
with timely.Worker() as worker:
    with worker.dataflow(int) as scope:
        clicks = dd.table(scope, connect.KafkaSource(where, topic, "user string, n long", bounded=True))
        counts = clicks.group_by("user").agg("count(*) as n").output()
    worker.run()
answer = {row["user"]: row["n"] for row in counts.to_arrow().to_pylist()}
"""

BYTEWAX = """
import json
import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSource
from bytewax.dataflow import Dataflow
from bytewax.testing import TestingSink, run_main
pairs = []
flow = Dataflow("counts")
records = op.input("records", flow, KafkaSource([where], [topic], tail=False, batch_size=4096))
op.output("out", op.count_final("count", records, lambda record: json.loads(record.value)["user"]), TestingSink(pairs))
run_main(flow)
answer = dict(pairs)
"""

PATHWAY = """
import pathway as pw
class Click(pw.Schema):
    user: str
    n: int
settings = {"bootstrap.servers": where, "group.id": "counts", "auto.offset.reset": "earliest"}
clicks = pw.io.kafka.read(settings, topic, schema=Click, format="json", mode="static")
answer = {}
def change(key, row, time, is_addition):
    if is_addition:
        answer[row["user"]] = row["n"]
pw.io.subscribe(clicks.groupby(pw.this.user).reduce(pw.this.user, n=pw.reducers.count()), change)
pw.run(monitoring_level=pw.MonitoringLevel.NONE)
"""

PEERS = {
    "bytewax": (BYTEWAX, ("bytewax==0.21.1", "confluent-kafka==2.16.1")),
    "pathway": (PATHWAY, ("pathway==0.33.0",)),
}


def run(rounds: int = 5, *, quick: bool = False) -> list[Row]:
    """Return how many processor seconds peers take for one of ours, and how many records ours reads in one."""
    records = 10_000 if quick else 300_000
    broker = confluent_kafka.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none", "log_level": 0})
    [place] = broker.list_topics(timeout=20).brokers.values()
    where = f"{place.host}:{place.port}"
    topics = {"one": produced(where, "one", 1), "many": produced(where, "many", records)}
    programs, rows = {"timely": (TIMELY, sys.executable)}, []
    for name, (program, requirements) in PEERS.items():
        try:
            programs[name] = program, python_with(*requirements)
        except Unavailable as reason:
            rows.append(Row(f"Kafka to counts: {name} over this library", None, note=str(reason)))
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(1 if quick else rounds):
        for name, (program, python) in programs.items():
            taken = {topic: processor_seconds(python, where, topic, program, answer) for topic, answer in topics.items()}
            seconds[name].append(max(taken["many"] - taken["one"], 1e-3))
    measured = {name: Measured(each) for name, each in seconds.items()}
    ours = measured.pop("timely")
    rows += [Row(f"Kafka to counts: {name} over this library", each / ours) for name, each in measured.items()]
    return [Row("Kafka to counts: records per processor second", records / ours), *rows]


def produced(where: str, topic: str, records: int) -> Mapping[str, int]:
    """Produce records, and return how many there are of each key."""
    producer = confluent_kafka.Producer({"bootstrap.servers": where, "log_level": 0, "queue.buffering.max.messages": 1_000_000})
    users = [f"user{number * 7919 % KEYS}" for number in range(records)]
    for number, user in enumerate(users):
        producer.produce(topic, json.dumps({"user": user, "n": number}), partition=number % PARTITIONS)
    producer.flush()
    return Counter(users)


def processor_seconds(python: str, where: str, topic: str, program: str, expected: Mapping[str, int]) -> float:
    """Return the processor seconds of a process that counts a topic; ``ValueError`` for another answer than that expected."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "answer")
        text = f"where, topic = {where!r}, {topic!r}{program}\nimport json\njson.dump(answer, open({str(result)!r}, 'w'))\n"
        with open(os.devnull, "wb") as nowhere, Popen([python, "-c", text], stdout=nowhere, stderr=nowhere) as process:
            _, _, usage = os.wait4(process.pid, 0)
            process.returncode = 0  # it is waited for
        if not result.exists() or json.loads(result.read_text()) != expected:
            raise ValueError(f"a contestant has another answer for {topic}: {program}")
    return usage.ru_utime + usage.ru_stime
