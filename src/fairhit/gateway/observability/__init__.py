"""What operators see of the gateway: metrics, the live page, the access log, traces."""
