"""One request from its last byte to the end of its answer."""
