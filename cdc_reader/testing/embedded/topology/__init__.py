"""The simulated cluster: nodes, tokens, generations, and the choice of streams for writes.

This package may import `cdc`, `schema` and `codec`. Begin with `cluster`.
"""
