"""The simulated cluster: nodes, their tokens, generations of streams, and who gets which write."""
