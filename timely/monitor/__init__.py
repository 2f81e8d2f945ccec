"""What a run shows of itself while it goes on: its workers in this process, a line on the terminal, counts of records.

Loaded with every run, so it loads quickly; :mod:`timely.inspect` has what explains, draws and records.
"""

__all__: list[str] = []
