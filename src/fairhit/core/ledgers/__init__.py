"""Counters of the policies: the service that clients have received and may still receive."""
