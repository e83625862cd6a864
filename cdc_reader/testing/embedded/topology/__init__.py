"""The simulated cluster: nodes, tokens, generations, and the choice of streams for writes.

May import `cdc`, `schema` and `codec`. Begin with `cluster`.
"""
