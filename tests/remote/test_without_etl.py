"""A real AIStore that was built without ETL: its commands say so, and nothing else changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import tar2tf
from optional_servers import started
from servers import ais_cluster
from tar2tf_cli import Conversion, convert
from tar2tf_cli.testing.shards import tar_of

WHY = "the cluster's AIStore was built without ETL (501)"


def test_a_cluster_without_etl_says_so_and_records_are_made_here(tmp_path: Path) -> None:
    sdk = pytest.importorskip("aistore.sdk", reason="no AIStore SDK: pip install aistore")
    out = tmp_path / "out" / "t.record"
    command = ("convert", "ais://photos", "-o", out)
    cluster = ais_cluster(tmp_path / "ais", targets=1, command="aisnode-noetl")
    with started(cluster, "; here, one that was built without -tags etl") as endpoint:
        sdk.Client(endpoint).bucket("photos").create().object("0.tar").get_writer().put_content(tar_of(10))
        for words in ((*command, "--remote-exec"), (*command, "--etl", "any-name"), ("etl", "list")):
            done = tar2tf(*words, env={"AIS_ENDPOINT": endpoint})
            assert (done.returncode, WHY in done.stderr) == (2, True), done.stderr
            assert not out.parent.exists()
        done = tar2tf(*command, env={"AIS_ENDPOINT": endpoint})
        lines = [line for line in done.stderr.splitlines() if "retrying" not in line]
        assert (done.returncode, len(lines)) == (0, 1), done.stderr
        with pytest.warns(UserWarning, match="converting locally, not in the cluster: .* was built without ETL"):
            convert(Conversion("ais://photos", tmp_path / "x.record", remote_exec=True), endpoint=endpoint, workers=1)
        assert (tmp_path / "x.record").read_bytes() == out.read_bytes()
