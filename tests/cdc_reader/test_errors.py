from __future__ import annotations

import pickle

from cdc_reader.config import ConnectionConfig
from cdc_reader.errors import CdcError, ConfigurationError


def test_a_configuration_error_is_one_line_with_option_value_and_remedy() -> None:
    """The message of a configuration error is one line with the option, the value and a remedy."""
    error = ConfigurationError("port", 0, "give a whole number from 1 to 65535")
    assert str(error) == "port is 0: give a whole number from 1 to 65535"
    assert isinstance(error, CdcError)


def test_a_configuration_error_pickles() -> None:
    """Configuration errors can be pickled, because Spark pickles the errors of its workers."""
    error = pickle.loads(pickle.dumps(ConfigurationError("port", 0, "give another")))
    assert (error.option, error.value, str(error)) == ("port", 0, "port is 0: give another")


def test_no_repr_shows_a_password() -> None:
    """No repr shows a password, so configurations can be logged."""
    config = ConnectionConfig("host", username="reader", password="hunter2")
    assert "hunter2" not in repr(config)
    assert "reader" in repr(config)
