"""Listening sockets and the connections that clients open: accepted, counted, limited."""
