"""The CQL native protocol, versions 3 and 4: decodes requests and encodes responses.

This package uses no sockets and parses no CQL. It decodes statement options and encodes results for
the package `query`, so it may import `query` and the packages below it. Begin with `connection`,
the state of one connection; `responses` encodes responses.
"""
