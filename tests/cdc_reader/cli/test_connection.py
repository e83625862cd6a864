"""The options that connect commands to a cluster."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cdc_reader.checkpoints import SqliteCheckpoints
from cdc_reader.cli.command import main
from cdc_reader.cli.connection import connection_options
from cdc_reader.cluster import opening
from cdc_reader.config import ConnectionConfig
from cdc_reader.testing import EmbeddedScylla

CERTIFICATES = Path(__file__).parents[2] / "data" / "tls"


@click.command
@connection_options
def show(connection: ConnectionConfig) -> None:
    """Print the connection that a command gets from its options."""
    click.echo(f"{connection} {connection.password}")


def test_options_and_variables_make_a_connection(tmp_path: Path) -> None:
    """Options override environment variables."""
    secret = tmp_path / "secret"
    secret.write_text("from the file\n")
    variables = {
        "SCYLLA_CDC_HOSTS": "a,b:9043",
        "SCYLLA_CDC_USERNAME": "me",
        "SCYLLA_CDC_PASSWORD": "from the variable",
    }
    arguments = ["--consistency", "one", "--local-dc", "dc1"]
    given = CliRunner().invoke(show, arguments, env=variables, catch_exceptions=False).output
    expected = ConnectionConfig(
        "a,b:9043", "me", "from the variable", consistency="ONE", local_dc="dc1"
    )
    assert given == f"{expected} from the variable\n"
    filed = CliRunner().invoke(
        show, ["--hosts", "c", "--username", "you", "--password-file", str(secret)], env=variables
    )
    assert filed.output == f"{ConnectionConfig('c', 'you', 'x')} from the file\n"


def test_a_password_is_asked_for_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The password prompt does not echo the password."""
    monkeypatch.setattr("cdc_reader.cli.connection._at_terminal", lambda: True)
    outcome = CliRunner().invoke(show, ["--username", "me"], input="secret\n")
    assert outcome.stdout.endswith(" secret\n")
    assert outcome.stderr.startswith("Password of me:")
    assert "secret" not in outcome.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--hosts", ","], "--hosts is (): give at least one host"),
        (["--username", "me"], "--username is 'me': give its password in --password-file or "),
        (["--username", "me", "--password-file", "nonesuch"], "--password-file is 'nonesuch': "),
        (["--tls-cert", "c.pem"], "--tls-key is None: give --tls-cert and --tls-key, or neither"),
        (["--tls-ca", "nonesuch"], "--tls-ca is 'nonesuch': give a readable PEM file"),
    ],
)
def test_unusable_values_are_refused_in_one_line(arguments: list[str], message: str) -> None:
    """Invalid values are rejected with exit status 2 and a one-line error without a traceback."""
    outcome = CliRunner().invoke(main, ["generations", *arguments])
    assert outcome.exit_code == 2
    [line] = outcome.stderr.splitlines()
    assert line.startswith(f"Error: {message}")


CLUSTERS = ["127.0.0.1:1", "ks.t", "127.0.0.1:1"]
COMMANDS: dict[str, list[str]] = {
    "compare": CLUSTERS,
    "demo": [],
    "generations": [],
    "import-position": ["go", "ks.positions", "ks.t", "--application", "printer"],
    "mirror": ["127.0.0.1:1", "ks.t", "/no/copy"],
    "replicate": CLUSTERS,
    "serve": [],
    "status": ["ks.t"],
    "streams": ["ks.t"],
    "tail": ["ks.t"],
}
ZERO = (
    "--until --shard --checkpoint-table --max-lag --workers "
    "--late-rows --data-loss --snapshot --expiry "
    "--consistency --source-consistency --target-consistency"
).split()
"""Options that must not be zero."""
OPTIONS = [
    (name, param.opts[0])
    for name in COMMANDS
    for param in import_module(f"cdc_reader.cli.{name.replace('-', '_')}").command.params
    if isinstance(param, click.Option) and not param.is_flag
]


def test_every_command_is_known() -> None:
    """`COMMANDS` lists every command except `version`."""
    assert set(COMMANDS) | {"version"} == set(main.list_commands(click.Context(main)))


@pytest.mark.parametrize(("command", "option"), OPTIONS)
def test_no_option_may_be_empty(command: str, option: str) -> None:
    """No option accepts an empty value, which scripts pass when a variable is not set."""
    for given in ([option, ""], [f"{option}="]):
        outcome = CliRunner().invoke(main, [command, *COMMANDS[command], *given])
        assert outcome.exit_code == 2
        assert outcome.stderr == f"Error: {option} is '': give a value, or leave it out\n"


@pytest.mark.parametrize(
    ("command", "option"),
    [pair for pair in OPTIONS if pair[0] not in ("demo", "serve") and pair[1] in ZERO],
)
def test_no_number_may_be_zero(command: str, option: str, tmp_path: Path) -> None:
    """A zero is rejected with an error that names the option."""
    arguments = [command, *COMMANDS[command], option, "0"]
    if option == "--max-lag":
        SqliteCheckpoints(tmp_path / "c").close()
        arguments += ["--checkpoint", str(tmp_path / "c")]
    outcome = CliRunner().invoke(main, arguments)
    assert outcome.exit_code == 2
    assert option in outcome.stderr.splitlines()[-1]


def test_an_unreachable_cluster_is_reported_in_one_line() -> None:
    """An unreachable cluster is reported with exit status 1 and a one-line error."""
    outcome = CliRunner().invoke(main, ["generations", "--hosts", "127.0.0.1:1"])
    assert outcome.exit_code == 1
    [line] = outcome.stderr.splitlines()
    assert line.startswith("Error: cannot connect to 127.0.0.1:1: ")


@pytest.mark.needs("faults")
def test_tls_by_the_system_and_without_host_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--tls` trusts the system's CAs, and `--no-tls-verify-hostname` accepts any host name."""
    elsewhere, key = CERTIFICATES / "elsewhere.pem", CERTIFICATES / "key.pem"
    monkeypatch.setenv("SSL_CERT_FILE", str(elsewhere))
    with EmbeddedScylla(certificate=elsewhere, key=key) as server:
        arguments = ["generations", "--hosts", server.contact_point, "--tls"]
        outcome = CliRunner().invoke(main, arguments)
        assert outcome.exit_code == 1
        assert "certificate is not for '127.0.0.1'" in outcome.stderr
        assert "turn --tls-verify-hostname off" in outcome.stderr
        outcome = CliRunner().invoke(main, [*arguments, "--no-tls-verify-hostname"])
        assert outcome.exit_code == 0


@pytest.mark.needs("faults")
def test_errors_of_a_connection_name_the_command_s_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors name the connection options of the cluster that caused them."""
    monkeypatch.setattr(opening, "CONNECT_TIMEOUT", 4.0)
    elsewhere, key = CERTIFICATES / "elsewhere.pem", CERTIFICATES / "key.pem"
    bad = tmp_path / "bad.pem"
    bad.write_text("no certificate\n")
    with EmbeddedScylla(certificate=elsewhere, key=key) as strict, EmbeddedScylla() as plain:
        hosts = strict.contact_point, plain.contact_point
        plain.execute(
            "CREATE KEYSPACE ks WITH replication = "
            "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
        )
        plain.execute("CREATE TABLE ks.t (p int PRIMARY KEY)")
        for arguments, message in (
            (["status", "ks.t", "--hosts", hosts[0]], "or turn --tls on"),
            (["status", "ks.t", "--hosts", hosts[1], "--tls-ca", str(bad)], "--tls-ca is "),
            (["status", "ks.t", "--hosts", hosts[1], "--local-dc", "x"], "--local-dc is 'x'"),
            (["compare", hosts[0], "ks.t", hosts[1], "--source-tls"], "it as --source-tls-ca"),
        ):
            outcome = CliRunner().invoke(main, arguments)
            assert outcome.exit_code in (1, 2)
            assert message in outcome.stderr.splitlines()[-1]


@pytest.mark.needs("faults")
def test_a_login_over_tls(tmp_path: Path) -> None:
    """The password is read from a file. If the login is refused, the password is not shown."""
    certificate, key = CERTIFICATES / "certificate.pem", CERTIFICATES / "key.pem"
    with EmbeddedScylla(credentials=("me", "right"), certificate=certificate, key=key) as server:
        secret = tmp_path / "secret"
        arguments = ["generations", "--hosts", server.contact_point, "--username", "me"]
        arguments += ["--password-file", str(secret), "--tls-ca", str(certificate)]
        secret.write_text("right\n")
        assert CliRunner().invoke(main, arguments).exit_code == 0
        secret.write_text("wr0ng\n")
        outcome = CliRunner().invoke(main, arguments)
    assert outcome.exit_code == 1
    assert "refused the login" in outcome.stderr
    assert "wr0ng" not in outcome.output
