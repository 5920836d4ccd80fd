"""Identity of the client that sends a request, and its permission to send it."""
