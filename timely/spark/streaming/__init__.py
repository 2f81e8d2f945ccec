"""A dataflow that stays up on Spark: the micro-batches of Structured Streaming are its epochs.

:func:`~timely.spark.streaming.query.stream` is the way in. An epoch goes through three places, and each says in one file when it
is done: its rows are *taken in* by Spark's tasks (``taking``), *computed* by workers that stay up in one long barrier job
(``crew`` on the driver, ``duty`` in the tasks), and *handed over* to the user's function (``query``). Which epoch is where is the
business of the ``ledger`` alone, a state machine over a few small files; that every epoch is handed over, in order and once,
rests on it and on nothing else.
"""
