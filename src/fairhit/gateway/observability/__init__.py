"""Observability of the gateway: metrics, dashboard, access log, traces."""
