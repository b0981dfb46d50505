"""A real AIStore behind HTTPS that asks for tokens, which the test signs as the cluster's AuthN server would."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from commands import tar2tf
from optional_servers import started
from servers import Guard, ais_cluster, ais_token, built_with, self_signed
from tar2tf_cli.errors import SourceError
from tar2tf_cli.stores import open_source, open_store
from tar2tf_cli.testing.shards import tar_of

pytestmark = pytest.mark.xdist_group("aistore, with tokens")

KEY = "a key of thirty-two bytes or more, for HS256"
READ_ONLY = 1 << 0 | 1 << 1 | 1 << 8 | 1 << 9  # GET and HEAD objects, HEAD and list buckets: api/apc/access.go


def token(seconds: float, **claims: Any) -> str:
    return ais_token(KEY, seconds, **claims)


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Guard:
    if not shutil.which("openssl"):
        pytest.skip("no openssl")
    return Guard(KEY, *self_signed(tmp_path_factory.mktemp("guard")))


@pytest.fixture(scope="module")
def endpoint(guard: Guard, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with started(ais_cluster(tmp_path_factory.mktemp("ais"), targets=1, guard=guard)) as url:
        yield url


@pytest.fixture(scope="module")
def bucket(guard: Guard, endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (
            ("AIS_ENDPOINT", endpoint),
            ("AIS_AUTHN_TOKEN", token(600, admin=True)),
            ("AIS_CLIENT_CA", str(guard.certificate)),
        ):
            patch.setenv(name, value)
        headers = {"Authorization": f"Bearer {token(600, admin=True)}"}
        url, ca = f"{endpoint}/v1/buckets/photos", str(guard.certificate)
        requests.post(url, json={"action": "create-bck"}, headers=headers, verify=ca, timeout=60).raise_for_status()
        store = open_store("ais://photos")
        for number in range(6):
            (tmp_path_factory.getbasetemp() / "object").write_bytes(tar_of(10, first=10 * number))
            store.put(f"in/{number}.tar", str(tmp_path_factory.getbasetemp() / "object"))
    return "ais://photos"


class Command:
    """The command with one token or another."""

    def __init__(self, endpoint: str, guard: Guard, folder: Path) -> None:
        self.environment = {
            "AIS_ENDPOINT": endpoint,
            "AIS_CLIENT_CA": str(guard.certificate),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "HOME": str(folder),
        }

    def __call__(self, *arguments: str | Path, **variables: str) -> Any:
        return tar2tf(*arguments, env={"AIS_AUTHN_TOKEN": "", **self.environment, **variables})


@pytest.fixture
def command(endpoint: str, guard: Guard, tmp_path: Path) -> Command:
    return Command(endpoint, guard, tmp_path)


def assert_refused(done: Any, words: str) -> None:
    assert done.returncode == 3
    assert words in done.stderr
    assert done.stderr.count("error:") == 1
    assert "ais auth login" in done.stderr
    assert "eyJ" not in done.stderr  # no part of a token


def test_without_a_token_the_user_is_told_how_to_get_one(command: Command, bucket: str, tmp_path: Path) -> None:
    assert_refused(command("convert", f"{bucket}/in", "-o", tmp_path / "t.record"), "401")


def test_a_token_of_another_key_is_refused(command: Command, bucket: str, tmp_path: Path) -> None:
    forged = token(600, admin=True)[:-4] + "AAAA"
    done = command("convert", f"{bucket}/in", "-o", tmp_path / "t.record", AIS_AUTHN_TOKEN=forged)
    assert_refused(done, "401")


def test_an_expired_token_fails_at_once(command: Command, bucket: str, tmp_path: Path) -> None:
    done = command("convert", f"{bucket}/in", "-o", tmp_path / "t.record", AIS_AUTHN_TOKEN=token(-60, admin=True))
    assert_refused(done, "expired")
    assert "gave up" not in done.stderr


@pytest.mark.parametrize("where", ["variable", "file", "login"])
def test_a_token_opens_both_ends(command: Command, bucket: str, tmp_path: Path, where: str) -> None:
    given = {"AIS_AUTHN_TOKEN": token(600, admin=True)}
    if where != "variable":
        path = tmp_path / ("my.token" if where == "file" else ".config/ais/cli/auth.token")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"token": given.pop("AIS_AUTHN_TOKEN")}))
        given |= {"AIS_AUTHN_TOKEN_FILE": str(path)} if where == "file" else {}
    done = command("convert", f"{bucket}/in", "-o", f"{bucket}/{where}/t-<>.record", **given)
    assert done.returncode == 0, done.stderr
    done = command("verify", f"{bucket}/{where}/_t-manifest.json", **given)
    assert done.returncode == 0, done.stderr
    assert "60 records" in done.stdout + done.stderr


def test_a_token_that_may_not_write_is_told(command: Command, bucket: str, guard: Guard, endpoint: str) -> None:
    cluster = guard.ask(f"{endpoint}/v1/daemon", what="smap").json()["uuid"]
    limited = token(600, admin=False, clusters=[{"id": cluster, "perm": str(READ_ONLY)}])
    done = command("convert", f"{bucket}/in", "-o", f"{bucket}/no/t-<>.record", AIS_AUTHN_TOKEN=limited)
    assert_refused(done, "403")
    assert "/no/_t-" in done.stderr


def test_why_the_cluster_does_not_make_records(
    command: Command, bucket: str, guard: Guard, endpoint: str, tmp_path: Path
) -> None:
    cluster = guard.ask(f"{endpoint}/v1/daemon", what="smap").json()["uuid"]
    admin, limited = token(600, admin=True), token(600, clusters=[{"id": cluster, "perm": str(READ_ONLY)}])
    convert = ("convert", f"{bucket}/in", "-o", tmp_path / "t.record", "--remote-exec")
    not_there = "does not run on Kubernetes" if built_with("etl") else "was built without ETL"
    for words, given, why in (
        (convert, limited, "does not let you use transformers (403)"),
        (("etl", "list"), "", "does not let you use transformers (401)"),
        (convert, admin, not_there),
        (("etl", "list"), admin, not_there),
    ):
        done = command(*words, AIS_AUTHN_TOKEN=given)
        assert (done.returncode, why in done.stderr) == (2, True), done.stderr
        assert "Traceback" not in done.stderr
    assert list(tmp_path.glob("[!.]*")) == []
    done = command(*convert[:-1], AIS_AUTHN_TOKEN=limited)
    assert (done.returncode, len(done.stderr.splitlines())) == (0, 1), done.stderr


def test_a_token_that_expires_during_the_run_is_told_and_a_new_one_continues(
    command: Command, bucket: str, tmp_path: Path
) -> None:
    (tmp_path / "slow.py").write_text(
        "import os, time\n\n"
        "def down(sample):\n"
        f"    late = int(sample['__key__']) >= 20 and not os.path.exists({str(tmp_path / 'fast')!r})\n"
        "    time.sleep(max(0, float(os.environ['EXPIRES']) - time.time()) if late else 0)\n"
        "    return sample\n"
    )
    run = ("convert", f"{bucket}/in", "-o", tmp_path / "out/t-<>.record", "--records-per-shard", "10", "-j", "1")
    run = (*run, "--op", f"func:{tmp_path / 'slow.py'}:down")
    made: list[Path] = []
    for lifetime in (4, 8, 16, 32, 64):  # the last ones for a busy machine, where a token expires before all else
        done = command(*run, AIS_AUTHN_TOKEN=token(lifetime, admin=True), EXPIRES=str(time.time() + lifetime))
        assert_refused(done, "expired")
        if made := [*(tmp_path / "out").glob("*.record")]:
            break
    assert 0 < len(made) < 6
    (tmp_path / "fast").touch()
    done = command(*run, AIS_AUTHN_TOKEN=token(600, admin=True))
    assert done.returncode == 0, done.stderr
    assert f"continuing an interrupted run: {len(made)} shard" in done.stderr
    assert "60 records" in done.stderr


def test_a_certificate_that_nobody_vouches_for_is_told(command: Command, bucket: str, tmp_path: Path) -> None:
    done = command("convert", f"{bucket}/in", "-o", tmp_path / "t.record", AIS_CLIENT_CA="")
    assert done.returncode == 3
    assert "TLS failed" in done.stderr
    assert "AIS_CLIENT_CA" in done.stderr


def test_http_to_a_cluster_that_speaks_https_is_told(endpoint: str) -> None:
    plain = endpoint.replace("https:", "http:")
    for bucket, where in (("ais://photos", plain), (f"{plain}/b", None), ("s3://photos", plain)):
        with pytest.raises(SourceError, match="speaks https, not http") as caught:
            open_source(bucket, endpoint=where, retry_for=0, no_sign_request=True).list(["x.tar"])
        assert caught.value.hint == f"write {endpoint}"


def test_a_certificate_that_is_not_there_is_a_usage_error(command: Command, bucket: str, tmp_path: Path) -> None:
    done = command("convert", f"{bucket}/in", "-o", tmp_path / "t.record", AIS_CLIENT_CA="/no/such.pem")
    assert done.returncode == 2
    assert "AIS_CLIENT_CA is set to /no/such.pem, which does not exist" in done.stderr


@pytest.mark.parametrize("bundle", ["", "/etc/ssl/certs/ca-certificates.crt"])
def test_verification_may_be_skipped_without_a_word(command: Command, bucket: str, tmp_path: Path, bundle: str) -> None:
    given = {"AIS_AUTHN_TOKEN": token(600, admin=True), "REQUESTS_CA_BUNDLE": bundle}
    skip = {"AIS_CLIENT_CA": "", "AIS_SKIP_VERIFY_CRT": "true"}
    for how, variables in (("ca", {}), ("skipped", skip)):
        output = f"{bucket}/{how}{len(bundle)}/t-<>.record"
        done = command("convert", f"{bucket}/in", "-o", output, **given, **variables)
        assert done.returncode == 0, done.stderr
        assert len(done.stderr.splitlines()) == 1
