"""The engine, which reads a log window by window, from one generation to the next.

It accesses the cluster only through `ports`, so tests can run it without a cluster. It may import
`config` and the packages below `config`. Begin with `follower`. `horizon` decides where a window
may end.
"""
