"""Looking into a dataflow: trace events, pictures, explanations of stuck frontiers, the live page. None of it changes a run."""

from timely.inspect.chrome_trace import ChromeTrace
from timely.inspect.event_log import (
    ChannelBuilt,
    Ended,
    Event,
    EventLog,
    Held,
    Notified,
    OperatorBuilt,
    OperatorTally,
    ProgressReceived,
    ProgressSent,
    Read,
    RecordsSent,
    Scheduled,
    Tally,
    Waited,
)
from timely.inspect.explanation import explain
from timely.inspect.live import LivePage
from timely.inspect.pictures import Picture, picture
from timely.inspect.snapshots import Snapshot, Wire, snapshot
from timely.worker.explanation_data import Description, Explanation, Leg, Reason, Unfinished
from timely.worker.worker import everywhere

__all__ = [
    "ChannelBuilt",
    "ChromeTrace",
    "Description",
    "Ended",
    "Event",
    "EventLog",
    "Explanation",
    "Held",
    "Leg",
    "LivePage",
    "Notified",
    "OperatorBuilt",
    "OperatorTally",
    "Picture",
    "ProgressReceived",
    "ProgressSent",
    "Read",
    "Reason",
    "Scheduled",
    "RecordsSent",
    "Snapshot",
    "Tally",
    "Unfinished",
    "Waited",
    "Wire",
    "everywhere",
    "explain",
    "picture",
    "snapshot",
]
