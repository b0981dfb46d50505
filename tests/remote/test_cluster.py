"""Transformers in a real cluster: every way in and out, with the records of a conversion that runs here."""

from __future__ import annotations


def test_a_cluster(etl) -> None:
    etl.bucket("x", {"a": b"1"})
    assert [item.name for item in etl.sdk.bucket("x").list_all_objects()] == ["a"]
