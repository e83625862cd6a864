"""The CQL native protocol, versions 3 and 4: decodes requests and encodes responses.

It has no sockets and parses no CQL. It decodes the options of `query` and encodes its results, so
it may import `query` and the packages below it. Begin with `connection`, the state of one
connection; `responses` encodes responses.
"""
