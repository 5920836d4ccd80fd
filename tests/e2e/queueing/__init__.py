"""A stock engine behind the gateway that queues for it."""
