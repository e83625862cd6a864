"""The ``cdc`` option map as `system_schema.tables.extensions` stores it."""

from __future__ import annotations

from cdc_reader.errors import DecodeError
from cdc_reader.schema import CdcOptions, ImageMode

_TRUE = ("true", "1", "on")
_IMAGES = {"full": ImageMode.FULL, **dict.fromkeys(_TRUE, ImageMode.TOUCHED)}


def parse_cdc_options(blob: bytes | None) -> CdcOptions:
    """The options in `blob`: a little-endian count, then keys and values with their lengths.

    None, as for a table that never had CDC, is CDC turned off. Raises DecodeError.
    """
    if blob is None:
        return CdcOptions()
    texts = _texts(blob)
    options = dict(zip(texts[::2], texts[1::2], strict=True))
    return CdcOptions(
        enabled=_is_true(options, "enabled"),
        preimage=_IMAGES.get(options.get("preimage", "").lower(), ImageMode.OFF),
        postimage=_is_true(options, "postimage"),
        delta_keys_only=options.get("delta", "").lower() == "keys",
        ttl=int(options.get("ttl", "86400")),
    )


def _is_true(options: dict[str, str], key: str) -> bool:
    return options.get(key, "").lower() in _TRUE


def _texts(blob: bytes) -> list[str]:
    texts, position = [], 4
    for _ in range(2 * int.from_bytes(blob[:4], "little")):
        start = position + 4
        position = start + int.from_bytes(blob[start - 4 : start], "little")
        if position > len(blob):
            raise DecodeError(f"a cdc option ends beyond its map of {len(blob)} bytes")
        texts.append(blob[start:position].decode())
    return texts
