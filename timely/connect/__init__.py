"""Sources and sinks with positions: what happens between them happens exactly once, whatever dies in between.

``scope.read(source)`` and ``stream.write(sink)`` are in dataflows under a :class:`timely.recovery.Recovery`; :func:`run` steps
them and takes checkpoints. A connector of your own implements :class:`SourceConnector` or :class:`SinkConnector`.
"""

from timely.connect.protocols import Change, Position, ReadBatch, SinkConnector, SourceConnector, check_history
from timely.connect.running import run
from timely.connect.sink_operator import write
from timely.connect.source_operator import read

__all__ = ["Change", "Position", "ReadBatch", "SinkConnector", "SourceConnector", "check_history", "read", "run", "write"]
