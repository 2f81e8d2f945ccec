from typing import TypeAlias

from timely.differential.facade import ArrangementMethods, CollectionMethods, TraceHandleMethods

ArrangementBase: TypeAlias = ArrangementMethods
CollectionBase: TypeAlias = CollectionMethods
TraceHandleBase: TypeAlias = TraceHandleMethods
