"""Metrics of requests, queues, caches and connections, in Prometheus' text format."""
