"""Windows of monitors as metrics: OpenMetrics text, Prometheus' protobuf, OTLP, scalars."""
