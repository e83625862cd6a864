"""The CQL native protocol, versions 3 and 4: bytes to requests, answers to bytes.

No sockets and no CQL. May import `codec`, `schema` and the results of `query`. Begin with
`connection`, the state of one connection; `responses` encodes answers.
"""
