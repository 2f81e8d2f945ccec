"""The Spark session of the tests of ``timely.spark`` serves these too."""

from tests.spark.conftest import session

__all__ = ["session"]
