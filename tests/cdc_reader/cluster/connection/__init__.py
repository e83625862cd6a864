"""Connections to a cluster: TLS, routing, query rates and faults."""
