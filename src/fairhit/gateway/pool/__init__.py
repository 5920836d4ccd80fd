"""The engines behind the gateway: health, load, models, circuit breaker, retries."""
