"""The CQL native protocol, versions 3 and 4: bytes to requests, answers to bytes.

No sockets and no CQL: `connection.Connection` is the core, `responses` encodes answers.
"""
