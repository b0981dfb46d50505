"""The settings of a transformer: equal where the records of an input are, and valid wherever they come from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tar2tf_cli.errors import RemoteError, UsageError
from tar2tf_cli.ops.func import Func
from tar2tf_cli.remote.stream import Settings
from tar2tf_cli.spec import __version__
from tar2tf_cli.spec.conversion import Conversion, Input


def of(**options: Any) -> Settings:
    output = options.pop("output", "out/<>.record")
    return Settings.of(Conversion(options.pop("input", "ais://b"), output, **options))


def test_settings_survive_the_environment() -> None:
    made = of(ops=["decode:jpg", "resize:jpg,224x224"], types=["cls=int64"], on_error="skip", limit=7)
    loaded = Settings.load(made.text)
    assert loaded == made
    assert loaded.name == made.name
    assert Settings.of(loaded.conversion()) == made


@pytest.mark.parametrize(
    "options",
    [
        {"output": "elsewhere/all.record"},
        {"input": "ais://other"},
        {"input": Input("ais://b", "x-{0..3}.tar")},
        {"max_errors": 3},
        {"max_lost": 3},
        {"shuffle": True},
        {"shuffle": True, "limit": 3},
    ],
)
def test_what_does_not_concern_one_input_makes_no_difference(options: dict[str, Any]) -> None:
    assert of(**options).name == of().name


@pytest.mark.parametrize(
    "options",
    [
        {"input": Input("ais://b", key_split="last")},
        {"input": Input("ais://b", ignore_missing_end=True)},
        {"ops": ["rename:a=b"]},
        {"ops": ["decode:jpg"], "max_pixels": 100},
        {"select": "jpg"},
        {"preset": "webdataset"},
        {"seed": 1},
        {"limit": 3},
        {"on_error": "skip"},
        {"max_entry_size": "1MB"},
        {"split": "a=0.5,b=0.5", "output": "<split>.record"},
    ],
)
def test_what_changes_records_changes_the_name(options: dict[str, Any]) -> None:
    assert of(**options).name != of().name


def test_keys_are_sent_for_a_split_only() -> None:
    assert of(split="a=0.5,b=0.5", output="<split>.record").keys
    assert of(split="a=0.5,b=0.5", output="<split>.record").name == of(split="c=1", output="<split>.record").name
    assert not of().keys


def test_the_name_is_one_that_a_cluster_takes() -> None:
    assert of().name.startswith("tar2tf-")
    assert len(of().name) == 23


@pytest.mark.parametrize(
    "options",
    [{"ops": [Func(lambda sample: sample)]}, {"record_to_example": lambda sample: None}, {"ops": ["func:os:getcwd"]}],
)
def test_python_of_the_user_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="a cluster runs functions of a file only"):
        of(**options)


@pytest.fixture
def func(tmp_path: Path) -> str:
    """A function in a file."""
    (tmp_path / "own.py").write_bytes(
        b"# coding: latin-1\nNAME = '\xfc'\n\ndef tag(sample, text):\n    return sample\n"
    )
    return f"func:{tmp_path / 'own.py'}:tag,text=dog"


def test_a_function_travels_with_its_file(func: str, tmp_path: Path) -> None:
    settings = of(ops=[func])
    assert list(settings.sources) == [str(tmp_path / "own.py")]
    again = Settings.load(settings.text, settings.sources)
    assert (again.text, again.of_samples.sources) == (settings.text, settings.sources)
    (op,) = again.conversion().ops
    assert op.canonical() == dict(settings.spec["ops"][0])
    assert not of().sources
    assert "sources" not in of().text


def test_the_name_depends_on_the_source_of_a_function(tmp_path: Path) -> None:
    names = set()
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "own.py").write_text(f"def tag(sample):\n    return {number}\n")
        names.add(of(ops=[f"func:{tmp_path}/{number}/own.py:tag"]).name)
    assert len(names) == 2


def test_functions_of_somebody_else_are_not_even_imported_here(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def tag(sample):\n    return sample\n")
    text = of(ops=[f"func:{tmp_path}/own.py:tag"]).text
    theirs = text.replace("def tag", "raise SystemExit('it ran')\\ndef tag").replace("own.py", "their.py")
    with pytest.raises(UsageError, match="call functions of somebody else"):
        Settings.load(theirs)
    with pytest.raises(UsageError, match="call functions of somebody else"):
        Settings.load(theirs, of(ops=[f"func:{tmp_path}/own.py:tag"]).sources)
    with pytest.raises(UsageError, match=r"their\.py cannot be imported: SystemExit: it ran"):
        Settings.load(theirs, sources=None)


def test_a_file_that_is_too_large_for_a_pod_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(f"WEIGHTS = '{'x' * 100_000}'\ndef tag(sample):\n    return sample\n")
    with pytest.raises(
        RemoteError, match=r"with files of functions, have 100,\d+ bytes, and may have 98,304"
    ) as caught:
        of(ops=[f"func:{tmp_path}/own.py:tag"])
    assert caught.value.hint == "make the files smaller, or put what they use into the image of the pods"


def test_only_tars_are_converted_there(tmp_path: Any) -> None:
    with pytest.raises(UsageError, match="a cluster converts only tars"):
        of(input=Input(tmp_path, kind="imagefolder"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "TAR2TF_ETL_SETTINGS does not hold the settings of a transformer"),
        ("[1]", "TAR2TF_ETL_SETTINGS does not hold the settings of a transformer"),
        ('{"version":"0.0.1","spec":{},"keys":false}', "the settings were made by tar2tf 0.0.1, but this is "),
        (of().text.replace('"spec":{}', '"spec":{"opps":[]}'), "there is no key 'opps'; did you mean 'ops'"),
        (of().text.replace('"spec":{}', '"spec":{"ops":[{"func":"no_such:module"}]}'), "runs functions of a file only"),
        (of().text.replace('"spec":{}', '"spec":{"ops":["func:no_such:module"]}'), "runs functions of a file only"),
    ],
)
def test_invalid_settings_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Settings.load(text)


@pytest.mark.parametrize(
    ("options", "flag"),
    [
        ({"drop_duplicates": True}, "--drop-duplicates"),
        ({"group_by": "steps"}, "--group-by"),
        ({"input": Input("ais://b", join="more.csv")}, "--join"),
        ({"input": Input("ais://b", key="<n>")}, "--key"),
        ({"input": Input("ais://b", keys="keys.txt")}, "--keys"),
        ({"split": "a=1", "split_by": "cls", "output": "<split>.record"}, "--split-by"),
        ({"split": "a=1", "stratify": "cls", "output": "<split>.record"}, "--stratify"),
        ({"drop_duplicates": True, "input": Input("ais://b", key="<n>")}, "--drop-duplicates"),
    ],
)
def test_an_option_that_does_not_work_there_is_named(options: dict[str, Any], flag: str) -> None:
    with pytest.raises(RemoteError) as caught:
        of(**options)
    assert caught.value.message == f"{flag} does not work in a cluster"
    assert caught.value.hint == f"leave out {flag}, or convert without --remote-exec"


@pytest.mark.parametrize("missing", ["version", "spec", "keys"])
def test_settings_without_a_part_are_none(missing: str) -> None:
    whole = json.loads(of().text)
    del whole[missing]
    with pytest.raises(UsageError) as caught:
        Settings.load(json.dumps(whole))
    assert caught.value.message == "TAR2TF_ETL_SETTINGS does not hold the settings of a transformer"


def test_settings_of_another_version_are_answered_with_what_to_do() -> None:
    with pytest.raises(UsageError) as caught:
        Settings.load('{"version":"0.0.1","spec":{},"keys":false}')
    assert caught.value.message == f"the settings were made by tar2tf 0.0.1, but this is {__version__}"
    assert caught.value.hint == "use an image with the version of the client"


def test_every_fault_of_settings_is_named() -> None:
    text = of().text.replace('"spec":{}', '"spec":{"opps":[],"limit":"many"}')
    with pytest.raises(UsageError) as caught:
        Settings.load(text)
    assert caught.value.message == (
        "TAR2TF_ETL_SETTINGS: there is no key 'opps'; did you mean 'ops'?; limit must be a whole number, not 'many'"
    )


def test_a_function_that_is_not_in_a_file_is_refused_with_the_next_step() -> None:
    for options in ({"ops": ["func:os:getcwd"]}, {"example_ops": [Func(len)]}, {"record_to_example": len}):
        with pytest.raises(RemoteError) as caught:
            of(**options)
        assert caught.value.message == "a cluster runs functions of a file only: func:FILE.py:NAME"
        assert caught.value.hint == "write the function into a file, or convert without --remote-exec"
