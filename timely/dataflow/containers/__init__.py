"""Containers, the payload of messages: how keys partition them, how small ones are concatenated, how all are pickled.

A container is a list, an Arrow batch, a NumPy array or a type of the user's own. Nothing here knows of streams, times or workers.
It may import ``timely.progress`` and below.
"""
