"""HTTP/1.1 on both sides: connections, heads, bodies, and the bounds on one step of the event loop."""
