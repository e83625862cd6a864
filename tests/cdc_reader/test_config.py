from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any

import pytest

from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.errors import ConfigurationError


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ("a", [("a", 9042)]),
        ("a:1, b ,", [("a", 1), ("b", 9042)]),
        (["10.0.0.1:19042"], [("10.0.0.1", 19042)]),
        ("[::1]:1,[::2],::3", [("::1", 1), ("::2", 9042), ("::3", 9042)]),
    ],
)
def test_contact_points_are_hosts_with_or_without_ports(
    points: str | list[str], expected: list[tuple[str, int]]
) -> None:
    """Contact points are one string or several. An IPv6 address with a port needs brackets."""
    assert ConnectionConfig(points).endpoints() == expected


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({"contact_points": " , "}, "contact_points"),
        ({"contact_points": "a:x"}, "contact_points"),
        ({"contact_points": "a:70000"}, "contact_points"),
        ({"contact_points": ":9042"}, "contact_points"),
        ({"consistency": "MOST"}, "consistency"),
        ({"request_timeout": timedelta(0)}, "request_timeout"),
        ({"username": "u"}, "password"),
        ({"password": "p"}, "username"),
        ({"tls_ca": "ca", "tls_cert": "c"}, "tls_key"),
        ({"tls_cert": "c", "tls_key": "k"}, "tls_ca"),
        ({"tls": "no"}, "tls"),
        ({"tls_verify_hostname": None}, "tls_verify_hostname"),
        ({"tls_verify_hostname": "no"}, "tls_verify_hostname"),
    ],
)
def test_an_error_names_the_unusable_setting(given: dict[str, Any], option: str) -> None:
    """An unusable setting is rejected at once with an error that names the setting."""
    with pytest.raises(ConfigurationError) as caught:
        ConnectionConfig(**{"contact_points": "a", **given})
    assert caught.value.option == option
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("window", timedelta(0)),
        ("confidence_window", timedelta(seconds=-1)),
        ("fetch_size", 0),
    ],
)
def test_an_error_names_the_read_setting_out_of_bounds(option: str, value: object) -> None:
    """The error names a setting that is out of bounds, such as a page without rows."""
    with pytest.raises(ConfigurationError, match=rf"^{option} is "):
        ReadConfig(**{option: value})  # type: ignore[arg-type]


def test_configurations_pickle() -> None:
    """Configurations can be pickled, because they are sent to other processes."""
    config = ConnectionConfig("a", username="u", password="p", consistency="local_quorum")
    assert pickle.loads(pickle.dumps((config, ReadConfig()))) == (config, ReadConfig())
    assert config.consistency == "LOCAL_QUORUM"
