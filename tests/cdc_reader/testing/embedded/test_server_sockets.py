"""Tests the embedded server's socket options."""

import socket

from cdc_reader.testing import EmbeddedScylla

OPTIONS_REQUEST = b"\x04\0\0\0\x05\0\0\0\0"


def test_small_answers_do_not_wait_for_each_other() -> None:
    """Each response is sent at once.

    By default, TCP delays a second small response until the client has acknowledged the first.
    """
    with EmbeddedScylla(port=0) as scylla:
        server = scylla._server
        with socket.create_connection(("127.0.0.1", scylla.port)) as client:
            client.sendall(OPTIONS_REQUEST)
            assert client.recv(9)[4] == 6  # SUPPORTED
            [connection] = server.call(
                lambda: [writer.get_extra_info("socket") for writer in server._writers.values()]
            )
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
