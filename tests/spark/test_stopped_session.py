"""What is asked of a session that was stopped is an error that says what to do."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.support.spark_programs import SparkPrograms


@pytest.mark.spark
def test_a_stopped_session_is_an_error(tmp_path: Path, spark_programs: SparkPrograms) -> None:
    """In a process of programs: the session of the other tests goes on."""
    program = """
        from timely import SparkError, spark
        session = spark.local_session(1)
        numbers = session.range(3)
        session.stop()
        try:
            spark.check(session, 1)
        except SparkError as error:
            print(error)
        for go in (spark.run, lambda *given, **more: spark.stream(*given, foreach_epoch=print, checkpoint="nowhere", **more)):
            try:
                go(lambda scope, numbers: {"numbers": numbers}, {"numbers": numbers}, {"numbers": "id long"}, workers=1)
            except SparkError as error:
                print(error)
    """
    ended = spark_programs.run(textwrap.dedent(program), tmp_path)
    assert ended.status == 0, ended.stderr
    assert ended.stdout.splitlines() == [
        "this Spark session was stopped: make another one",
        *["the Spark session of the inputs was stopped: make another one, and the inputs in it"] * 2,
    ]
