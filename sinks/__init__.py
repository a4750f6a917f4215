"""Where delivered triggers go: the sink contract and the built-in sinks."""
