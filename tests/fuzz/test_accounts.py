"""The fuzzers that keep an account: a few trials of each, the same ones each time."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from accounts import CREDENTIALS, TRIALS

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

TIMES = int(os.environ.get("TAR2TF_TRIALS", "30"))


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


def tried(name: str, folder: Path) -> None:
    for seed in range(TIMES):
        (folder / str(seed)).mkdir()
        TRIALS[name](random.Random(seed), folder / str(seed))


def test_tars_give_what_their_account_says(tmp_path: Path) -> None:
    tried("tars", tmp_path)


def test_a_damaged_tar_gives_nothing_that_its_account_does_not_say(tmp_path: Path) -> None:
    tried("damaged", tmp_path)


def test_a_document_with_one_changed_value_does_no_harm(tmp_path: Path) -> None:
    tried("documents", tmp_path)


def test_a_changed_value_in_an_interrupted_run_s_folder_does_no_harm(tmp_path: Path) -> None:
    tried("journals", tmp_path)


def test_a_spec_with_one_changed_value_is_refused_or_makes_what_is_whole(tmp_path: Path) -> None:
    tried("specs", tmp_path)


def test_a_listing_of_something_else_is_an_error(tmp_path: Path) -> None:
    tried("stores", tmp_path)
