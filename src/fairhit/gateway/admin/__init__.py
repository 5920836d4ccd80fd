"""Health, readiness, models, metrics, and the admin API."""
