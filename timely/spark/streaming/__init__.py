"""A dataflow that stays up on Spark: the micro-batches of Structured Streaming are its epochs.

:func:`~timely.spark.streaming.query.stream` is the entry point. Spark's tasks write the rows of an epoch to files (``ingest``),
workers in one long barrier job compute it (``supervisor`` on the driver, ``worker_task`` in the tasks), and a user's function
gets the outputs (``query``). The ``epoch_log`` alone decides what is left to do; exactly-once delivery rests on it.
"""
