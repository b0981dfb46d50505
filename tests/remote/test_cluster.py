"""Transformers in a real cluster: every way in and out, with the records of a conversion that runs here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import Any

import pytest

from commands import wait_until
from etl_cluster import EtlCluster
from shards import PHOTOS
from tar2tf_cli.errors import DamagedShardError
from tar2tf_cli.remote.stream import Settings, StreamReader, error_of
from tar2tf_cli.spec.conversion import Conversion
from verify_runs import a_tar, some_members

pytestmark = pytest.mark.xdist_group("transformers")

PHOTO_TAR = (PHOTOS / "photos-0.tar").read_bytes()
OPTIONS: dict[str, Any] = {"ops": ["decode:jpg", "resize:jpg,16x16"], "types": ["cls=int64"]}
SETTINGS = Settings.of(Conversion("ais://b", "-", **OPTIONS))
PLAIN = ("photos.tar", "deep/er.tar", "with space.tar", "größe 日本.tar", "p%41+&=.tar")
ODD = ("q?x=1.tar", "a#b.tar")
FAULTY = {"empty.tar": b"", "cut.tar": PHOTO_TAR[:60_000], "faulty.tar": a_tar(some_members(3))}
COMMS = ("hpush", "hpull")


@pytest.fixture(scope="module")
def source(etl_cluster: EtlCluster) -> Any:
    """A bucket of whole and faulty tars, some with odd names."""
    with etl_cluster.network():
        return etl_cluster.bucket("src", {**dict.fromkeys((*PLAIN, *ODD), PHOTO_TAR), **FAULTY})


@pytest.fixture(scope="module")
def transformers(etl_cluster: EtlCluster) -> Iterator[dict[str, str]]:
    """A transformer for each way in."""
    with etl_cluster.network(), ThreadPoolExecutor() as threads:
        yield dict(
            zip(COMMS, threads.map(lambda comm: etl_cluster.init(SETTINGS, comm, f"server-{comm}"), COMMS), strict=True)
        )


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The records of a photo tar as converted here."""
    from tar2tf_cli import convert

    folder = tmp_path_factory.mktemp("here")
    convert(Conversion(PHOTOS / "photos-0.tar", folder / "x.record", **OPTIONS), workers=1)
    return (folder / "x.record").read_bytes()


def get(etl: EtlCluster, bucket: Any, name: str, transformer: str) -> bytes:
    from aistore.sdk.etl import ETLConfig

    return bytes(bucket.object(name).get_reader(etl=ETLConfig(transformer)).read_all())


def records(answer: bytes, settings: Settings = SETTINGS) -> bytes:
    """The records of a whole answer."""
    reader = StreamReader(BytesIO(answer), "x", settings.digest)
    return b"".join(part for _, parts, *_ in reader.records() for part in parts)


def transformed(etl: EtlCluster, source: Any, name: str, **options: Any) -> tuple[dict[str, bytes], list[Any]]:
    """The objects that a job makes of a bucket, and its errors."""
    there = etl.bucket("dst")
    job = source.transform(etl_name=name, to_bck=there, cont_on_err=True, **options)
    etl.sdk.job(job).wait(timeout=60)
    made = {item.name: bytes(there.object(item.name).get_reader().read_all()) for item in there.list_all_objects()}
    return made, etl.sdk.etl(name).view(job).obj_errors or []


@pytest.mark.parametrize("comm", COMMS)
def test_objects_with_ordinary_and_with_odd_names_are_the_records_of_a_conversion(
    etl: EtlCluster, source: Any, transformers: dict[str, str], wanted: bytes, comm: str
) -> None:
    for name in PLAIN if comm == "hpush" else (*PLAIN, *ODD):
        assert records(get(etl, source, name, transformers[comm])) == wanted, name


@pytest.mark.parametrize("name", ODD)
def test_a_name_that_the_cluster_cuts_is_an_error(
    etl: EtlCluster, source: Any, transformers: dict[str, str], name: str
) -> None:
    with pytest.raises(Exception, match="neither etl_fqn nor a body; a cluster drops what follows"):
        get(etl, source, name, transformers["hpush"])


@pytest.mark.parametrize("comm", COMMS)
@pytest.mark.parametrize("name", FAULTY)
def test_a_faulty_object_is_an_error_with_its_reason(
    etl: EtlCluster, source: Any, transformers: dict[str, str], name: str, comm: str
) -> None:
    with pytest.raises(Exception, match="422") as caught:
        get(etl, source, name, transformers[comm])
    text = str(caught.value).partition("MESSAGE:")[2]
    error = error_of(
        json.JSONDecoder().raw_decode(text)[0]["message"] if comm == "hpush" else text, f"ais://src/{name}"
    )
    assert error is not None
    assert isinstance(error, DamagedShardError) == (name != "faulty.tar")
    assert error.shard == f"ais://src/{name}"


@pytest.mark.parametrize("comm", COMMS)
def test_a_job_stores_what_is_whole_and_says_why_the_rest_is_not_there(
    etl: EtlCluster, source: Any, transformers: dict[str, str], wanted: bytes, comm: str
) -> None:
    made, errors = transformed(etl, source, transformers[comm], ext={"tar": "record"})
    taken = PLAIN if comm == "hpush" else (*PLAIN, *ODD)
    assert {name: records(data) == wanted for name, data in made.items()} == {
        name.replace(".tar", ".record"): True for name in taken
    }
    failed = {error.obj_name.partition("src/")[2]: error.msg for error in errors}
    assert {*FAULTY, *ODD} - {*taken} == set(failed)
    assert "the file is empty, so it is not a tar" in failed["empty.tar"]


def test_a_pipeline_goes_on_to_the_next_transformer(
    etl: EtlCluster, source: Any, transformers: dict[str, str], wanted: bytes
) -> None:
    from aistore.sdk.etl import ETLConfig

    size = (
        "import os\nfrom aistore.sdk.etl.webserver.http_multi_threaded_server import HTTPMultiThreadedServer\n"
        "class Size(HTTPMultiThreadedServer):\n"
        "    def transform(self, data, path, etl_args):\n        return b'%d bytes' % len(data)\n"
        "Size(port=int(os.environ['PORT'])).start()\n"
    )
    etl.sdk.etl("size-of-it").init(image="none", command=["python", "-c", size], init_timeout="60s", direct_put=True)
    whole = get(etl, source, "photos.tar", transformers["hpush"])
    both = etl.sdk.etl(transformers["hpush"]) >> etl.sdk.etl("size-of-it")
    answer = source.object("photos.tar").get_reader(etl=ETLConfig(both)).read_all()
    assert answer == b"%d bytes" % len(whole)


def test_where_files_are_not_told_objects_are_sent(
    etl: EtlCluster, source: Any, transformers: dict[str, str], wanted: bytes, features: Callable[[int], None]
) -> None:
    features(128)  # Disable-FQN of AIStore's feature flags
    for comm in COMMS:
        assert records(get(etl, source, "photos.tar", transformers[comm])) == wanted


@pytest.mark.parametrize("comm", COMMS)
def test_an_object_that_was_uploaded_in_parts_is_read_to_its_end(
    etl: EtlCluster, source: Any, transformers: dict[str, str], wanted: bytes, comm: str
) -> None:
    bucket = etl.bucket("parts")
    upload = bucket.object("in parts é.tar").multipart_upload().create()
    for number, start in enumerate(range(0, len(PHOTO_TAR), 20_480), 1):
        upload.add_part(number).put_content(PHOTO_TAR[start : start + 20_480])
    upload.complete()
    assert records(get(etl, bucket, "in parts é.tar", transformers[comm])) == wanted


@pytest.fixture
def features(etl: EtlCluster) -> Iterator[Callable[[int], None]]:
    """Sets the feature flags of the cluster."""
    import requests

    def change(flags: int) -> None:
        body = {"action": "set-config", "value": {"features": str(flags)}}
        requests.put(f"{etl.endpoint}/v1/cluster", json=body, timeout=60).raise_for_status()

    yield change
    change(0)


def test_the_time_limit_of_the_cluster_is_an_error_and_ends_the_work(etl: EtlCluster, source: Any) -> None:
    large = Settings.of(Conversion("ais://b", "-", ops=["decode:jpg", "resize:jpg,3000x3000"]))
    name = etl.init(large, "hpush", "too-slow", obj_timeout="100ms")
    made, errors = transformed(etl, source, name, prefix_filter="photos")
    assert made == {}
    assert "context deadline exceeded" in errors[0].msg
    wait_until(lambda: "the client has gone" in etl.logs(name), "the work to end")


def test_a_pod_says_what_is_wrong_with_its_settings(etl: EtlCluster) -> None:
    with pytest.raises(Exception, match="a cluster runs functions of a file only"):
        etl.init(SETTINGS, "hpush", "own-code", TAR2TF_ETL_SETTINGS=SETTINGS.text.replace('{"decode"', '{"func"'))
    etl.sdk.etl("own-code").delete()
