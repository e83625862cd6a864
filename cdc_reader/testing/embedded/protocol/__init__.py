"""The CQL native protocol, versions 3 and 4: bytes in, requests out, answers back to bytes.

No sockets and no CQL: `connection.Connection` is the core, `responses` encodes what to answer.
"""
