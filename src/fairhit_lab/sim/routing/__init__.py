"""Routers of a simulation, and what they know of the replicas' caches."""
