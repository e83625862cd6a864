"""Rephrases errors of `cdc_reader` with the names of the options that cause them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from cdc_reader.errors import ConfigurationError, SchemaError

CONNECTION_OPTIONS = {
    "contact_points": "hosts",
    "username": "username",
    "password": "password",
    "tls": "ssl.enabled",
    "tls_ca": "ssl.caFile",
    "tls_verify_hostname": "ssl.verifyHostname",
    "tls_cert": "ssl.certFile",
    "tls_key": "ssl.keyFile",
    "local_dc": "localDC",
    "consistency": "consistencyLevel",
    "request_timeout": "requestTimeout",
}
"""The options that set the settings of `ConnectionConfig`."""
READ_OPTIONS = {
    "fetch_size": "fetchSize",
    "max_queries_per_second": "maxQueriesPerSecond",
    "confidence_window": "confidenceWindow",
    "retry_deadline": "retryTimeout",
}
"""The options that set the settings of `ReadConfig`."""
_OPTION_OF_KEYWORD = {
    "include_delta": "includeDelta",
    "range_deletes": "rangeDeletes",
    "decimal_type": "decimalType",
    "on_bad_record": "onBadRecord",
    "a later start": "a later startingTimestamp",
}
_OPTIONS = CONNECTION_OPTIONS | READ_OPTIONS | _OPTION_OF_KEYWORD


def in_words(text: str, options: Mapping[str, str] = _OPTIONS) -> str:
    """Return the text with option names in place of the settings and keywords of `cdc_reader`."""
    return re.sub(rf"\b({'|'.join(options)})\b", lambda name: options[name.group()], text)


def in_option_words(error: ConfigurationError) -> ConfigurationError:
    """Return the error with option names in place of the settings and keywords of `cdc_reader`."""
    option = _OPTIONS.get(error.option, error.option)
    value = str(error.value).lower() if isinstance(error.value, bool) else error.value
    return ConfigurationError(option, value, in_words(error.remedy))


def in_keyword_options(error: SchemaError) -> SchemaError:
    """Return the error with option names in place of the keywords of `cdc_reader`."""
    return type(error)(in_words(str(error), _OPTION_OF_KEYWORD))
