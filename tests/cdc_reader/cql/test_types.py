"""The conversion tables for native types are complete, and names of other types are parsed."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from cdc_reader.cluster import values as cluster_values
from cdc_reader.cql import json, order, values
from cdc_reader.cql.types import NATIVE_TYPES, UserType, parse
from cdc_reader.decoding import marshal, metadata, scalars
from cdc_reader.decoding.arrow_type import NATIVE
from cdc_reader.testing.embedded.codec.marshal import NATIVE_CLASSES
from cdc_reader.testing.embedded.protocol.types import NATIVE_IDS

TABLES = {
    "cql.values": values._NATIVE,
    "cql.json": json._NATIVE,
    "cql.order": order._NATIVE,
    "cluster.values": cluster_values._NATIVE,
    "cluster.values, bytes": cluster_values._SERIALISERS,
    "decoding.arrow_type": NATIVE,
    "decoding.metadata": metadata._NATIVE_BY_CODE.values(),
    "decoding.marshal": marshal._NATIVE.values(),
    "decoding.scalars": scalars.SCALARS,
    "embedded codec.marshal": NATIVE_CLASSES,
    "embedded protocol.types": NATIVE_IDS,
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_no_type_is_forgotten(table: Collection[str]) -> None:
    """Each conversion table contains every native type."""
    assert set(table) == NATIVE_TYPES


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("frozen<u>", "u"),
        ('frozen<"Odd">', "Odd"),
        ("frozen<KS.U>", "ks.u"),
        ('frozen<ks."Odd ""one""">', 'ks.Odd "one"'),
        ('frozen<"Ks".u>', "Ks.u"),
        ('frozen<"Ks"."a.b">', "Ks.a.b"),
        ('frozen< "int" >', "int"),
    ],
)
def test_names_of_user_defined_types(text: str, name: str) -> None:
    """Each part of a name may be in quotes. Other parts are folded to lower case."""
    assert parse(text, lambda it: UserType("ks", it, ())) == UserType("ks", name, (), frozen=True)
