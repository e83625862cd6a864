"""The CQL native protocol, versions 3 and 4: bytes to requests, answers to bytes.

No sockets and no CQL. May import `query`, whose options it reads and whose results it encodes,
and the packages below it. Begin with `connection`, the state of one connection; `responses`
encodes answers.
"""
