"""The simulated cluster: nodes, tokens, generations of streams, and the stream of each write.

May import `cdc`, `schema` and `codec`. Begin with `cluster`.
"""
