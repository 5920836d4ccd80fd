"""The gateway as one process or several: start, signals, reload, supervisor."""
