"""Sounds, videos and captions on the page of `inspect --html`."""

from __future__ import annotations

import base64
import io
import wave
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from images import jpeg, photo
from pages import Page, a_wav, computed, needs_browser, page_of
from shards import write_tar
from tar2tf_cli.checking.page_samples import MOST_CLIPS, MOST_SOUND
from verify_runs import Ran, an_example, framed, write


def loaded(page: Page, element: str) -> list[tuple[str, bytes]]:
    """The kind and the bytes of each player's source."""
    sources = [(attrs["src"] or "").partition(";base64,") for attrs in page.all(element)]
    return [(kind.removeprefix("data:"), base64.b64decode(data)) for kind, _, data in sources]


def test_a_sound_has_a_player_and_its_text(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    sound = a_wav()
    tar = write_tar(tmp_path / "x.tar", [("a", {"wav": sound, "txt": b"she <b>said</b> so"})])
    path = tmp_path / "x.html"
    page = page_of(run_inspect(tar, "--html", path), path)
    assert loaded(page, "audio") == [("audio/wav", sound)]
    assert "controls" in page.all("audio")[0]
    assert "she <b>said</b> so a wav" in page.text


def test_sounds_in_records_have_players(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    shard = write(tmp_path / "x.tfrecord", framed(an_example(sound=a_wav(), transcript=b"so")))
    page = page_of(run_inspect(shard, "--html", tmp_path / "x.html"), tmp_path / "x.html")
    assert loaded(page, "audio") == [("audio/wav", a_wav())]
    assert "so #0 sound" in page.text


@needs_browser
@pytest.mark.parametrize("form", ["WAV", "FLAC", "OGG", "MP3"])
def test_a_browser_plays_every_kind_of_sound(tmp_path: Path, run_inspect: Callable[..., Ran], form: str) -> None:
    soundfile = pytest.importorskip("soundfile", reason="soundfile is not installed")
    file = io.BytesIO()
    soundfile.write(file, np.sin(np.arange(16000) / 9).astype("f4") / 2, 16000, format=form)
    path = tmp_path / "x.html"
    tar = write_tar(tmp_path / "x.tar", [("a", {form.lower(): file.getvalue()})])
    page_of(run_inspect(tar, "--html", path), path)
    assert float(computed(path, "document.querySelector('audio').duration")) == pytest.approx(1, abs=0.1)


def test_a_long_wav_is_cut_and_still_a_wav(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    sound = a_wav(44100, 20, 2)
    tar = write_tar(tmp_path / "x.tar", [("a", {"wav": sound})])
    page = page_of(run_inspect(tar, "--html", tmp_path / "x.html"), tmp_path / "x.html")
    ((_, data),) = loaded(page, "audio")
    assert MOST_SOUND - 100 < len(data) <= MOST_SOUND
    with wave.open(io.BytesIO(data)) as cut, wave.open(io.BytesIO(sound)) as original:
        assert cut.getparams()[:3] == original.getparams()[:3]
        assert cut.readframes(cut.getnframes()) == original.readframes(cut.getnframes())
    assert "the first 524" in page.text


def test_sounds_that_cannot_be_decoded_are_faults(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    samples = [("a", {"wav": a_wav()}), ("b", {"wav": a_wav()[:900]})]
    page = page_of(
        run_inspect(write_tar(tmp_path / "x.tar", samples), "--html", tmp_path / "p"), tmp_path / "p", code=3
    )
    assert "b: 'wav' cannot be decoded: truncated WAV" in page.text
    assert "1 fault " in page.text
    assert len(page.all("audio")) == 1
    assert "decoded (2 sounds), so others may be damaged" in page.text


def test_sounds_that_were_not_decoded_are_not_counted_as_such(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    samples = [("a", {"wav": a_wav(44100, 80)}), ("b", {"wav": a_wav()})]  # of 7 MB, which is not held in memory
    page = page_of(run_inspect(write_tar(tmp_path / "x.tar", samples), "--html", tmp_path / "p"), tmp_path / "p")
    assert len(page.all("audio")) == 2
    assert "decoded (1 sound), so others may be damaged" in page.text


def test_few_sounds_are_on_the_page_however_many_there_are(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    for shard in range(5):
        samples = [(f"{number}", {"wav": a_wav(16000, 10)}) for number in range(20)]
        write_tar(tmp_path / "set" / f"{shard}.tar", samples)
    page = page_of(run_inspect(tmp_path / "set", "--html", tmp_path / "x.html"), tmp_path / "x.html")
    assert len(page.all("audio")) == MOST_CLIPS
    assert (tmp_path / "x.html").stat().st_size < 1.4 * MOST_CLIPS * MOST_SOUND


def an_mp4(size: int) -> bytes:
    return b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom" + (size - 24).to_bytes(4, "big") + b"mdat" + bytes(size - 32)


@pytest.mark.parametrize(("size", "players"), [(2000, 1), (3 << 20, 0)])
def test_a_small_video_has_a_player(
    tmp_path: Path, run_inspect: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, size: int, players: int
) -> None:
    monkeypatch.setattr("tar2tf_cli.checking.decode.decode_video", lambda data: None)  # these have no frames
    tar = write_tar(tmp_path / "x.tar", [("a", {"mp4": an_mp4(size), "txt": b"a dance"})])
    page = page_of(run_inspect(tar, "--html", tmp_path / "x.html"), tmp_path / "x.html")
    assert loaded(page, "video") == [("video/mp4", an_mp4(size))] * players
    assert "a dance" in page.text
    assert ("3.15 MB are too many for the page" in page.text) is not bool(players)


@pytest.mark.parametrize("name", ["txt", "caption", "text"])
def test_captions_are_under_their_images(tmp_path: Path, run_inspect: Callable[..., Ran], name: str) -> None:
    caption = "Ein Café <script>alert('&')</script>, " + "sehr " * 100
    sample = {"jpg": jpeg(photo(20, 30)), name: caption.encode()}
    path = tmp_path / "x.html"
    page = page_of(run_inspect(write_tar(tmp_path / "x.tar", [("a", sample)]), "--html", path), path)
    (shown,) = [text for tag, text in page.texts if tag == "q"]
    assert shown.startswith("Ein Café <script>alert('&')</script>, sehr")
    assert len(shown) == 200
    assert page.all("script") == []


def test_several_captions_of_a_record_are_under_its_image(tmp_path: Path, run_inspect: Callable[..., Ran]) -> None:
    record = an_example(**{"image/encoded": jpeg(photo(20, 30)), "image/caption": [b"one", b"two"]})
    shard = write(tmp_path / "x.tfrecord", framed(record))
    page = page_of(run_inspect(shard, "--html", tmp_path / "x.html"), tmp_path / "x.html")
    assert [text for tag, text in page.texts if tag == "q"] == ["one · two"]
