"""The CQL native protocol, versions 3 and 4: converts bytes to requests, responses to bytes.

It has no sockets and parses no CQL. May import `query`, whose options it decodes and whose results
it encodes, and the packages below it. Begin with `connection`, the state of one connection;
`responses` encodes responses.
"""
