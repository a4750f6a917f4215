"""Where delivered triggers go: the sink contract, for who writes a sink. The runtime's side is `sinks.registry`."""

from sinks.one_by_one import OneByOne
from sinks.protocol import (
    LANDS,
    SINK_CONTRACT,
    Delivered,
    Delivery,
    Host,
    NoOptions,
    Outcome,
    Rejected,
    Retry,
    RowWriter,
    Sink,
    SinkBase,
    TransactionalSink,
)

__all__ = [
    "LANDS",
    "SINK_CONTRACT",
    "Delivered",
    "Delivery",
    "Host",
    "NoOptions",
    "OneByOne",
    "Outcome",
    "Rejected",
    "Retry",
    "RowWriter",
    "Sink",
    "SinkBase",
    "TransactionalSink",
]
