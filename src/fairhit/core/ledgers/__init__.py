"""What clients have received and may still receive: the counters of the policies."""
