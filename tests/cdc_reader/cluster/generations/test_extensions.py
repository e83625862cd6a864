from __future__ import annotations

import pytest

from cdc_reader.cluster.schema import parse_cdc_options
from cdc_reader.cql.schema import CdcOptions, ImageMode
from cdc_reader.errors import DecodeError

DEFAULT = bytes.fromhex(
    "05000000 05000000 64656c7461 04000000 66756c6c 07000000 656e61626c6564 04000000 74727565"
    "09000000 706f7374696d616765 05000000 66616c7365 08000000 707265696d616765"
    "05000000 66616c7365 03000000 74746c 05000000 3836343030"
)


def test_the_documented_blob_is_the_default_options_enabled() -> None:
    """The documented blob, 99 bytes from a real server, enables CDC with the default options."""
    assert parse_cdc_options(DEFAULT) == CdcOptions(enabled=True)


def test_no_blob_is_no_cdc() -> None:
    """A table on which CDC was never enabled has no CDC extension."""
    assert parse_cdc_options(None) == CdcOptions(enabled=False)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"enabled": "1", "preimage": "full"}, CdcOptions(True, ImageMode.FULL)),
        ({"preimage": "TRUE", "postimage": "on"}, CdcOptions(False, ImageMode.TOUCHED, True)),
        ({"delta": "keys", "ttl": "0"}, CdcOptions(delta_keys_only=True, ttl=0)),
        ({"enabled": "false", "tablet_merge_blocked": "true"}, CdcOptions()),
    ],
)
def test_each_option_is_read_in_any_spelling(options: dict[str, str], expected: CdcOptions) -> None:
    """CDC options are read in any spelling. Unknown keys, from newer servers, are ignored."""
    assert parse_cdc_options(blob(options)) == expected


def blob(options: dict[str, str]) -> bytes:
    """Return the option map in the form in which a server stores it."""
    texts = [text.encode() for pair in options.items() for text in pair]
    sized = b"".join(len(text).to_bytes(4, "little") + text for text in texts)
    return len(options).to_bytes(4, "little") + sized


@pytest.mark.parametrize("end", range(4, len(DEFAULT)))
def test_a_blob_cut_short_is_a_decode_error(end: int) -> None:
    """Decoding a truncated blob of any length raises a DecodeError."""
    with pytest.raises(DecodeError):
        parse_cdc_options(DEFAULT[:end])
