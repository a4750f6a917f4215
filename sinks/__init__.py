"""Where delivered triggers go: the sink contract, for who writes a sink. The runtime's side is `sinks.registry`."""

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
    "Outcome",
    "Rejected",
    "Retry",
    "RowWriter",
    "Sink",
    "SinkBase",
    "TransactionalSink",
]
