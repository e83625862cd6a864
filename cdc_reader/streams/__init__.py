"""The streams of a log over time: streams, generations, windows of write time.

May import `cql`. Begin with `generation`; `window` divides time, `task` is what one query reads.
"""
