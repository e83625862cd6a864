"""TLS on real sockets: trusted servers, expected names, and errors.

The certificates in `tests/data/tls` are self-signed and share `key.pem`. `certificate.pem` and
`expired.pem` name localhost and 127.0.0.1, `localhost.pem` names only localhost, and
`elsewhere.pem` names another host.
"""

from __future__ import annotations

import logging
from concurrent.futures import Future
from pathlib import Path

import pytest

from cdc_reader.cluster import opening
from cdc_reader.cluster.opening import Opening
from cdc_reader.config import ConnectionConfig
from cdc_reader.errors import CdcError, ConfigurationError, ConnectionFailedError
from cdc_reader.reading.retry import NEVER
from cdc_reader.testing import EmbeddedScylla

TLS = Path(__file__).parents[3] / "data" / "tls"
BOTH, BY_NAME, ELSEWHERE, EXPIRED, CLIENT, KEY = (
    str(TLS / f"{name}.pem")
    for name in ("certificate", "localhost", "elsewhere", "expired", "client", "key")
)


def reach(server: EmbeddedScylla, host: str = "127.0.0.1", **settings: object) -> list[str]:
    """Return the addresses of the nodes that a session with these settings can query."""
    config = ConnectionConfig(f"{host}:{server.port}", **settings)  # type: ignore[arg-type]
    session = Opening(config, 100).session(NEVER)
    try:
        return sorted(host.address for host in session.get_pool_state())
    finally:
        session.cluster.shutdown()


def refusal(server: EmbeddedScylla, host: str = "127.0.0.1", **settings: object) -> str:
    """Return the one-line error of a session that fails with these settings."""
    with pytest.raises(ConnectionFailedError) as caught:
        reach(server, host, **settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_certificate_may_name_the_host_or_its_address(host: str) -> None:
    """A contact point can be a host name or an address, if the certificate names it."""
    with EmbeddedScylla(certificate=BOTH, key=KEY) as server:
        assert reach(server, host, tls_ca=BOTH) == ["127.0.0.1"]


def test_the_name_of_a_contact_point_counts() -> None:
    """A contact point's name is checked, even if the driver connects to its address."""
    with EmbeddedScylla(certificate=BY_NAME, key=KEY) as server:
        assert reach(server, "localhost", tls_ca=BY_NAME) == ["127.0.0.1"]


@pytest.mark.parametrize("client_authority", [None, CLIENT])
def test_a_port_that_speaks_tls_alone(
    client_authority: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error for a connection without TLS says that the port uses TLS.

    This holds whether the server closes the connection or does not respond.
    """
    monkeypatch.setattr(opening, "CONNECT_TIMEOUT", 1.0)
    with EmbeddedScylla(certificate=BOTH, key=KEY, client_authority=client_authority) as server:
        message = refusal(server)
    assert message.endswith("it speaks TLS on this port; check the port, or turn tls on")


def test_a_certificate_of_another_name_is_refused() -> None:
    """The error for a certificate with another name shows the expected name and says what to do."""
    with EmbeddedScylla(certificate=BY_NAME, key=KEY) as server:
        said = refusal(server, tls_ca=BY_NAME)
    assert f"cannot connect to 127.0.0.1:{server.port}: " in said
    assert "its certificate is not for '127.0.0.1'" in said
    assert "give a host name that the certificate has, or turn tls_verify_hostname off" in said
    with EmbeddedScylla(certificate=ELSEWHERE, key=KEY) as server:
        assert "not for 'localhost'" in refusal(server, "localhost", tls_ca=ELSEWHERE)


def test_a_certificate_that_has_expired_is_to_be_renewed() -> None:
    """The error for an expired certificate suggests renewing it, not using another CA."""
    with EmbeddedScylla(certificate=EXPIRED, key=KEY) as server:
        said = refusal(server, tls_ca=EXPIRED)
    assert "certificate has expired" in said
    assert said.endswith("renew it, or set this machine's clock")


def test_host_names_are_not_checked_if_disabled() -> None:
    """If host names are not checked, the certificate's CA is still checked."""
    with EmbeddedScylla(certificate=ELSEWHERE, key=KEY) as server:
        assert reach(server, tls_ca=ELSEWHERE, tls_verify_hostname=False)
        said = refusal(server, tls_ca=BY_NAME, tls_verify_hostname=False)
    assert "give the authority that signed it as tls_ca" in said


def test_the_authorities_of_the_system_are_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a CA file, `tls` trusts the CAs of the system."""
    with EmbeddedScylla(certificate=BOTH, key=KEY) as server:
        assert "give the authority that signed it as tls_ca" in refusal(server, tls=True)
        monkeypatch.setenv("SSL_CERT_FILE", BOTH)
        assert reach(server, tls=True) == ["127.0.0.1"]


class Warnings(logging.Handler):
    """A log handler whose future `first` receives the first warning."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.first: Future[str] = Future()

    def emit(self, record: logging.LogRecord) -> None:
        if not self.first.done():
            self.first.set_result(record.getMessage())


def test_a_node_that_is_found_by_its_address_must_have_it() -> None:
    """A node whose certificate lacks its address is not queried, and a warning says why."""
    warnings = Warnings()
    logger = logging.getLogger("cdc_reader.cluster.tls")
    logger.addHandler(warnings)
    try:
        with EmbeddedScylla(certificate=BOTH, key=KEY, nodes=2) as server:
            config = ConnectionConfig(server.contact_point, tls_ca=BOTH)
            session = Opening(config, 100).session(NEVER)
            try:
                said = warnings.first.result(timeout=120)
                assert session.get_pool_state().keys() == {session.hosts[0]}
            finally:
                session.cluster.shutdown()
    finally:
        logger.removeHandler(warnings)
    assert "event='node_refused' node='127.0.0.2'" in said
    assert "its certificate is not for '127.0.0.2'" in said
    assert "tls_" not in said


def test_a_server_without_tls_is_reported() -> None:
    """The error for a server without TLS says that the port does not use TLS."""
    with EmbeddedScylla() as server:
        assert "does not speak TLS on this port" in refusal(server, tls_ca=BOTH)


def test_a_client_shows_its_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that requires client certificates rejects a client without one."""
    with EmbeddedScylla(certificate=BOTH, key=KEY, client_authority=CLIENT) as server:
        assert reach(server, tls_ca=BOTH, tls_cert=CLIENT, tls_key=KEY)
        monkeypatch.setattr(opening, "CONNECT_TIMEOUT", 1.0)
        refusal(server, tls_ca=BOTH)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tls": False, "tls_ca": BOTH}, "^tls is False: leave tls_ca out, or turn tls on"),
        (
            {"tls_cert": CLIENT, "tls_key": KEY},
            "^tls_ca is None: .*, or turn tls on",
        ),
        ({"tls": False, "tls_cert": CLIENT, "tls_key": KEY}, "^tls is False: leave tls_cert out"),
    ],
)
def test_settings_that_contradict_each_other(settings: dict[str, object], message: str) -> None:
    """Contradictory TLS settings are rejected, so no unencrypted connection is opened."""
    with pytest.raises(ConfigurationError, match=message):
        ConnectionConfig("host", **settings)  # type: ignore[arg-type]


def test_unfit_client_files_are_named(tmp_path: Path) -> None:
    """The error for an unusable certificate or key file names the option and the path."""
    with EmbeddedScylla(certificate=BOTH, key=KEY) as server, pytest.raises(CdcError) as caught:
        reach(server, tls_ca=BOTH, tls_cert=str(tmp_path / "none"), tls_key=KEY)
    assert str(caught.value).startswith(f"tls_cert is '{tmp_path}/none'")
