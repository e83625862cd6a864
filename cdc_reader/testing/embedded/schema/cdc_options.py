"""The `cdc` option map of a table: its validation and its stored form."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from cdc_reader.testing.embedded.errors import ConfigurationError
from cdc_reader.testing.embedded.profile import Profile

_TRUE, _FALSE = ("true", "1"), ("false", "0")
_OLD_SPELLING = {"on": "true", "off": "false"}
_MAX_TTL = 2**31 - 1


@frozen
class CdcOptions:
    """The CDC options of a table; `ttl` is in seconds, and 0 means that log rows never expire.

    `preimage` is "false", "true" (touched columns) or "full"; `delta` is "full" or "keys".
    """

    enabled: bool = False
    preimage: str = "false"
    postimage: bool = False
    delta: str = "full"
    ttl: int = 86400

    @classmethod
    def parse(cls, options: Mapping[str, str], profile: Profile) -> CdcOptions:
        """Parse the options of ``WITH cdc = {...}``; raise ConfigurationError if one is invalid."""
        spelt = {key.lower(): value for key, value in options.items()}
        if not profile.alter_names_enabled and "preimage" in spelt:
            spelt["preimage"] = _OLD_SPELLING.get(spelt["preimage"].lower(), spelt["preimage"])
        parsed = {key: _parse(key, value) for key, value in spelt.items()}
        return cls(**parsed)  # type: ignore[arg-type]  # _parse gives each key its type

    def as_map(self) -> dict[str, str]:
        """Return the map as ScyllaDB stores it, with sorted keys."""
        return {
            "delta": self.delta,
            "enabled": str(self.enabled).lower(),
            "postimage": str(self.postimage).lower(),
            "preimage": self.preimage,
            "ttl": str(self.ttl),
        }

    def as_extension(self) -> bytes:
        """Encode the options as the blob 'cdc' of `system_schema.tables.extensions`.

        Lengths are little-endian.
        """
        parts = [_chunk(key) + _chunk(value) for key, value in self.as_map().items()]
        return len(parts).to_bytes(4, "little") + b"".join(parts)


def _chunk(text: str) -> bytes:
    return len(text).to_bytes(4, "little") + text.encode()


def _parse(key: str, value: str) -> bool | str | int:
    match key:
        case "enabled" | "postimage":
            return _boolean(key, value)
        case "preimage":
            return "full" if value.lower() == "full" else str(_boolean(key, value)).lower()
        case "delta":
            if value.lower() not in ("full", "keys"):
                raise _bad_value(key, value)
            return value.lower()
        case "ttl":
            return _ttl(value)
        case _:
            raise ConfigurationError(f"Invalid CDC option: {key}")


def _boolean(key: str, value: str) -> bool:
    if value.lower() in _TRUE:
        return True
    if value.lower() in _FALSE:
        return False
    raise _bad_value(key, value)


def _ttl(value: str) -> int:
    try:
        ttl = int(value)
    except ValueError:
        raise _bad_value("ttl", value) from None
    if ttl < 0:
        raise ConfigurationError("Invalid CDC option: ttl must be >= 0")
    if ttl > _MAX_TTL:
        raise ConfigurationError("Invalid CDC option: ttl too large")
    return ttl


def _bad_value(key: str, value: str) -> ConfigurationError:
    return ConfigurationError(f'Invalid value for CDC option "{key}": {value}')
