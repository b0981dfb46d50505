"""Secrets in URLs are shown nowhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from servers import FaultyServer, nobody_listens
from tar2tf_cli.errors import UsageError
from tar2tf_cli.spec.urls import without_secrets
from tar2tf_cli.stores import open_source
from tar2tf_cli.testing.shards import tar_of

pytestmark = pytest.mark.xdist_group("s3")

SECRETS = [
    "s3://user:secret@bucket/folder",
    "s3://KEY:sec/secret+@bucket/folder",
    "s3://secret@bucket",
    "s3://bucket/folder?token=secret",
    "gs://user:secret@bucket/folder",
    "gs://bucket/x.json?token=secret",
    "ais://user:secret@bucket",
    "ais://bucket/folder?token=secret",
    "ais+s3://user:secret@bucket/folder",
    "gopher://user:secret@bucket",
]


class TestSecrets:
    def run(self, capfd: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[object, str]:
        """Exit code and all output of a command in this process."""
        from tar2tf_cli.cli import main

        with pytest.raises(SystemExit) as ended:
            main([*map(str, arguments)])
        return ended.value.code, "".join(capfd.readouterr())

    @pytest.mark.parametrize("url", SECRETS)
    def test_credentials_where_they_do_not_belong_are_refused_and_not_repeated(
        self, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        (tmp_path / "shards").mkdir()
        (tmp_path / "shards" / "s.tar").write_bytes(tar_of(3))
        (tmp_path / "spec.yaml").write_text(f"input: {{bucket: '{url}'}}\noutput: {{path: '{tmp_path}/x.record'}}")
        for command in (
            ["verify", url],
            ["inspect", url],
            ["convert", url, "-o", tmp_path / "x.record"],
            ["convert", url, "-o", tmp_path / "x.record", "--dry-run"],
            ["convert", "--spec", tmp_path / "spec.yaml"],
            ["convert", tmp_path / "shards", "-o", f"{url}/x-<>.record"],
            ["convert", tmp_path / "shards", "-o", url.replace("folder", "folder/x-<>.record")],
            ["convert", tmp_path / "shards", "-o", f"{url}/"],
        ):
            code, said = self.run(capfd, *command)
            assert (code, said.count("error:"), "secret" in said) == (2, 1, False), said
        assert sorted(os.listdir(tmp_path)) == ["shards", "spec.yaml"]

    def test_what_is_no_secret_stays(self) -> None:
        plain = ["ais://@uuid#ns/b/x", "ais://#ns/b", "s3://b/a:b@c/d", "s3://b/train-?.tar", "out/a:b@c?x=1", "-"]
        assert [without_secrets(url) for url in plain] == plain
        assert without_secrets("https://user:secret@host:1/a@b?sig=secret#secret") == "https://host:1/a@b"

    def test_those_of_a_web_address_are_kept_nowhere(
        self, web: FaultyServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        for number in range(4):
            web.objects[f"b/s-{number}.tar"] = tar_of(40, first=40 * number)
        url = web.url.replace("http://", "http://user:secret@") + "/b/?sig=secret"
        command = ["convert", url, "s-{0..3}.tar", "-o", tmp_path / "x-<>.record", "--records-per-shard", "30", "-v"]
        for words, code in (("--dry-run", 0), ("permission denied (403)", 3), ("continuing", 0), ("up to date", 0)):
            if code:
                web.fail("GET b/s-3", "status", times=1, status=403)
            found, said = self.run(capfd, *command, *([words] if words == "--dry-run" else ["-j", "1"]))
            assert (found, words in said or words == "--dry-run", "secret" in said) == (code, True, False), said
            kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
            assert b"secret" not in kept
            assert bool(kept) == (words != "--dry-run")
        for options in (["-v"], ["-n", "1"], ["--json"]):
            found, said = self.run(capfd, "inspect", url, "s-{0..3}.tar", "-j", "1", *options)
            assert (found, "secret" in said) == (0, False), said
        for command in (
            ["inspect", url, "no.tar"],
            ["verify", url, "no.tar"],
            ["inspect", f"{url}/no"],
            ["verify", url],
        ):
            found, said = self.run(capfd, *command)
            assert (found in (2, 3), "secret" in said) == (True, False), said

    @pytest.mark.usefixtures("quick_retries")
    @pytest.mark.parametrize("bucket", ["ais://b", "s3://b"])
    def test_those_of_an_endpoint_are_not_shown(
        self, bucket: str, s3: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        with nobody_listens() as port:
            endpoint = f"http://user:secret@127.0.0.1:{port}"
            code, said = self.run(capfd, "convert", bucket, "-o", tmp_path / "x.record", "--endpoint", endpoint)
        assert (code, said.count("error:"), "secret" in said) == (3, 1, False), said

    @pytest.mark.parametrize(
        "url", ["http://user:secret@[::1/b", "http://user:secret@h:99999/b", "http://user:secret@"]
    )
    def test_an_address_that_is_none_does_not_show_them(self, url: str) -> None:
        with pytest.raises(UsageError) as caught:
            open_source(f"{url}?sig=secret").list(["x.tar"])
        assert "secret" not in str(caught.value)
