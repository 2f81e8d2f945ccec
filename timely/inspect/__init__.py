"""Looking into a dataflow: what it looks like, why a frontier is where it is, and who holds it there.

Nothing here changes what a dataflow does, and one that nobody looks at pays nothing for it.
"""

from timely.inspect.event_log import EventLog
from timely.inspect.events import (
    ChannelBuilt,
    Ended,
    Event,
    Held,
    Notified,
    OperatorBuilt,
    ProgressHeard,
    ProgressTold,
    Read,
    Scheduled,
    Sent,
    Waited,
)
from timely.inspect.explain import explain
from timely.inspect.live import LivePage
from timely.inspect.picture import Picture, picture
from timely.inspect.progress_line import ProgressLine
from timely.inspect.snapshot import Snapshot, Wire, snapshot
from timely.inspect.tally import OperatorTally, Tally
from timely.inspect.watchdog import Watchdog
from timely.worker.explanation import Explanation, Leg, Reason, Unfinished
from timely.worker.worker import everywhere

__all__ = [
    "ChannelBuilt",
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
    "ProgressHeard",
    "ProgressLine",
    "ProgressTold",
    "Read",
    "Reason",
    "Scheduled",
    "Sent",
    "Snapshot",
    "Tally",
    "Unfinished",
    "Waited",
    "Watchdog",
    "Wire",
    "everywhere",
    "explain",
    "picture",
    "snapshot",
]
