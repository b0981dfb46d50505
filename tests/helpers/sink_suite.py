"""Tests that every sink passes, wherever it publishes."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commands import end, start, tar2tf, wait_until
from shards import tree
from tar2tf_cli.conversion.output_state import Destination
from tar2tf_cli.conversion.plan import make_plan
from tar2tf_cli.errors import NothingFoundError, OutputExistsError, SinkError
from tar2tf_cli.sinks import Sink, open_sink
from tar2tf_cli.sinks.objects import ObjectSink
from tar2tf_cli.spec.conversion import Conversion, Output
from tar2tf_cli.stores import open_source, open_store
from tar2tf_cli.testing.shards import read_all, tar_of


class SinkSuite:
    """What every sink must do; `place` is an output folder as its user writes it."""

    @pytest.fixture
    def place(self) -> str:
        raise NotImplementedError

    @pytest.fixture
    def sink(self, place: str) -> Any:
        sink = open_sink(f"{place}/t-<>.record")
        yield sink
        sink.close()

    @pytest.fixture
    def parts(self, tmp_path: Path) -> Path:
        (tmp_path / "parts").mkdir()
        return tmp_path / "parts"

    def publish(self, sink: Sink, parts: Path, path: str, data: bytes) -> None:
        part = parts / path.replace("/", "-")
        part.write_bytes(data)
        sink.publish(str(part), path)

    def test_what_is_published_is_there_and_the_local_file_is_not(self, sink: Sink, place: str, parts: Path) -> None:
        path = sink.inside(f"{place}/t-1.record")
        assert not sink.exists(path, now=True)
        assert (sink.size(path), sink.read(path)) == (None, None)
        self.publish(sink, parts, path, b"whole")
        sink.flush([os.path.dirname(path)])
        assert sink.exists(path, now=True)
        assert sink.read(path) == b"whole"
        assert sink.locate(path) == f"{place}/t-1.record"
        assert not os.listdir(parts)
        again = open_sink(f"{place}/t-<>.record")
        assert again.size(path) == 5

    def test_publishing_replaces(self, sink: Sink, place: str, parts: Path) -> None:
        path = sink.inside(f"{place}/t-1.record")
        for data in (b"before", b"after!"):
            self.publish(sink, parts, path, data)
            sink.flush([os.path.dirname(path)])
        assert sink.read(path) == b"after!"

    def test_many_files_are_published(self, sink: Sink, place: str, parts: Path) -> None:
        folder = sink.inside(f"{place}/")
        paths = [os.path.join(folder, f"sub/t-{number}.record") for number in range(20)]
        for path in paths:
            self.publish(sink, parts, path, os.urandom(100_000))
        sink.flush({os.path.dirname(path) for path in paths})
        found = open_sink(f"{place}/t-<>.record").walk(os.path.normpath(folder), nested=True)
        assert sorted(name for name, is_folder in found if not is_folder) == sorted(
            f"sub/t-{number}.record" for number in range(20)
        )

    def test_walking_stops_at_folders_where_it_should(self, sink: Sink, place: str, parts: Path) -> None:
        folder = sink.inside(f"{place}/")
        for name in ("t-1.record", "sub/t-2.record"):
            self.publish(sink, parts, os.path.join(folder, name), b"x")
        sink.flush([os.path.join(folder, "sub")])
        fresh = open_sink(f"{place}/t-<>.record")
        found = [name for name, is_folder in fresh.walk(os.path.normpath(folder), nested=False) if not is_folder]
        assert found == ["t-1.record"]

    def test_removing_what_is_not_there_is_no_error(self, sink: Sink, place: str, parts: Path) -> None:
        path = sink.inside(f"{place}/t-1.record")
        self.publish(sink, parts, path, b"x")
        sink.flush([os.path.dirname(path)])
        for _ in range(2):
            sink.remove(path)
            assert not sink.exists(path)
            assert not sink.exists(path, now=True)

    def test_the_working_folder_is_local_and_of_this_output_alone(self, sink: Sink, place: str) -> None:
        first = sink.prepare(sink.inside(f"{place}/_a-manifest.json"))
        second = sink.prepare(sink.inside(f"{place}/_b-manifest.json"))
        assert first != second
        assert os.path.isabs(first)
        assert "://" not in first


class RemoteSinkSuite(SinkSuite):
    """What is true of buckets alone."""

    @pytest.fixture(autouse=True)
    def cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def test_a_missing_bucket_is_one_error(self, place: str, parts: Path) -> None:
        sink = open_sink(f"{place.partition('://')[0]}://no-such-bucket-anywhere/t-<>.record")
        self.publish(sink, parts, "t-1.record", b"x")
        with pytest.raises(SinkError) as caught:
            sink.flush([""])
        sink.close()
        assert "no-such-bucket-anywhere" in (caught.value.shard or "")
        assert (parts / "t-1.record").exists()

    def test_bytes_that_arrive_damaged_are_an_error(
        self, sink: ObjectSink, place: str, parts: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put = sink.store.put

        def damaged(name: str, path: str, **_: bool) -> None:
            whole = Path(path).read_bytes()
            Path(path).write_bytes(whole[:-1])
            put(name, path)
            Path(path).write_bytes(whole)

        monkeypatch.setattr(sink.store, "put", damaged)
        self.publish(sink, parts, sink.inside(f"{place}/t-1.record"), b"whole")
        with pytest.raises(SinkError, match="5 bytes were uploaded, but 4 bytes arrived"):
            sink.flush([""])
        assert os.listdir(parts)
        assert not open_sink(f"{place}/t-<>.record").exists(sink.inside(f"{place}/t-1.record"), now=True)

    @pytest.fixture
    def shards(self, six_shards: Path) -> Path:
        """Shards that no test changes."""
        return six_shards

    @pytest.fixture
    def changing(self, shards: Path, tmp_path: Path) -> Path:
        """A copy of the shards that a test may change."""
        return shutil.copytree(shards, tmp_path / "shards")

    def objects(self, place: str, *, required: bool = True) -> dict[str, bytes]:
        source = open_source(place)
        with contextlib.nullcontext() if required else contextlib.suppress(NothingFoundError):
            return {item.name: read_all(source, item) for item in source.list(["*"])}
        return {}

    def local(self, shards: Path, limit: str, *options: str) -> dict[str, bytes]:
        """What a conversion to a folder writes."""
        out = shards.parent / "-".join(("local", limit, *options)).replace("/", "-")
        if not out.exists():
            done = tar2tf("convert", shards, "-o", out / "t-<>.record", "--records-per-shard", limit, *options)
            assert done.returncode == 0, done.stderr
        return tree(out)

    @pytest.mark.parametrize("template", ["t-<>.record", "t-<000>-of-<total>.record"])
    def test_converting_to_a_bucket_gives_what_it_gives_in_a_folder(
        self, place: str, shards: Path, tmp_path: Path, template: str
    ) -> None:
        out = tmp_path / "local"
        for target in (str(out), place):
            done = tar2tf("convert", shards, "-o", f"{target}/{template}", "--records-per-shard", "50", "--index")
            assert done.returncode == 0, done.stderr
        expected = tree(out)
        assert len(expected) == 11
        assert self.objects(place) == expected
        assert not os.listdir(tmp_path / "cache" / "tar2tf")

    def test_the_same_command_again_is_a_no_op(self, place: str, changing: Path) -> None:
        command = ("convert", changing, "-o", f"{place}/t-<>.record", "--records-per-shard", "50")
        assert tar2tf(*command).returncode == 0
        again = tar2tf(*command)
        assert again.returncode == 0
        assert "up to date" in again.stderr
        (changing / "s-6.tar").write_bytes(tar_of(3, first=900))
        changed = tar2tf(*command)
        assert changed.returncode == 2
        assert "1 added (s-6.tar)" in changed.stderr
        assert tar2tf(*command, "--overwrite").returncode == 0

    def test_an_update_replaces_only_what_changed(self, place: str, changing: Path, tmp_path: Path) -> None:
        command = ("convert", changing, "-o", f"{place}/t-<>.record", "--records-per-shard", "40")
        assert tar2tf(*command).returncode == 0
        (changing / "s-6.tar").write_bytes(tar_of(50, first=900))
        (changing / "s-3.tar").write_bytes(tar_of(40, first=700))
        done = tar2tf(*command, "--update")
        assert done.returncode == 0, done.stderr
        assert "updating: 1 added (s-6.tar), 1 changed (s-3.tar)" in done.stderr
        assert "in 8 shards (5 kept)" in done.stderr
        assert self.objects(place) == self.local(changing, "40")
        for name in ("s-5.tar", "s-6.tar"):
            (changing / name).unlink()
        done = tar2tf(*command, "--update")
        assert "in 5 shards (5 kept)" in done.stderr
        assert len(self.objects(place)) == 6
        assert tar2tf("verify", f"{place}/_t-manifest.json").returncode == 0
        assert not os.listdir(tmp_path / "cache" / "tar2tf")

    @pytest.mark.parametrize("template", ["t-<>.record", "t-<00>-of-<total>.record", "<split>/t-<00>.record"])
    def test_the_top_of_a_bucket_is_a_place_like_any_other(self, place: str, shards: Path, template: str) -> None:
        top = place.rpartition("/")[0]
        split = ("--split", "a=0.5,b=0.5") if "<split>" in template else ()
        command = ("convert", shards, "-o", f"{top}/{template}", "--records-per-shard", "50", *split)
        for words in ("240 records", "up to date: 240 records"):
            done = tar2tf(*command)
            assert done.returncode == 0, done.stderr
            assert words in done.stderr
        (manifest,) = [item.name for item in open_source(top).list(["*.json"])]
        assert tar2tf("verify", f"{top}/{manifest}").returncode == 0

    def test_what_others_wrote_is_not_replaced(self, place: str, shards: Path, parts: Path, sink: Sink) -> None:
        self.publish(sink, parts, sink.inside(f"{place}/t-2.record"), b"precious")
        sink.flush([""])
        command = ("convert", shards, "-o", f"{place}/t-<>.record", "--records-per-shard", "50")
        refused = tar2tf(*command)
        assert refused.returncode == 2
        assert f"{place}/t-2.record: already exists" in refused.stderr
        assert self.objects(place) == {"t-2.record": b"precious"}
        assert tar2tf(*command, "--overwrite").returncode == 0
        assert self.objects(place) == self.local(shards, "50")

    def test_a_killed_run_continues(self, place: str, shards: Path, tmp_path: Path) -> None:
        command = ["convert", str(shards), "-o", f"{place}/t-<>.record", "--records-per-shard", "8", "-j", "1"]

        def some_are_there() -> bool:
            fresh = open_sink(f"{place}/t-<>.record")
            return len(list(fresh.walk(fresh.inside(place), nested=False))) >= 4

        options = self.killed_when(some_are_there, command, tmp_path)
        command += options
        assert "_t-manifest.json" not in self.objects(place)
        self.check_unfinished(place, tmp_path)
        done = tar2tf(*command)
        assert done.returncode == 0, done.stderr
        assert "continuing an interrupted run" in done.stderr
        assert self.objects(place) == self.local(shards, "8", *options)
        assert not os.listdir(tmp_path / "cache" / "tar2tf")
        assert tar2tf("verify", place).returncode == 0

    def test_a_claim_that_a_finished_run_had_no_time_to_remove_says_nothing(
        self, place: str, shards: Path, tmp_path: Path, sink: Sink
    ) -> None:
        output = f"{place}/t-<>.record"
        plan = make_plan(Conversion(str(shards), Output(output, records_per_shard=50)))
        assert tar2tf("convert", shards, "-o", output, "--records-per-shard", "50").returncode == 0
        self.claimed(place, tmp_path, conversion=Destination(plan, sink).digest, shards="t-<>.record")
        assert tar2tf("verify", place).returncode == 0
        self.claimed(place, tmp_path, conversion="of something else", shards="t-<>.record")
        assert tar2tf("verify", f"{place}/_t-manifest.json").returncode == 1

    def check_unfinished(self, place: str, folder: Path) -> None:
        """Every reader says that the shards of a killed conversion are not all, whatever names them."""
        said = f"the conversion that writes {place}/_t-manifest.json is not finished"
        for named in (place, f"{place}/t-*"):
            verified = tar2tf("verify", named)
            assert (verified.returncode, said in verified.stdout + verified.stderr) == (1, True), (
                verified.stdout + verified.stderr
            )
        for command in (["inspect", place], ["diff", place, place]):
            assert said in tar2tf(*command).stderr, command
        converted = tar2tf("convert", place, "-o", folder / "o.record")
        assert (converted.returncode, said in converted.stderr) == (3, True), converted.stderr

    def test_tars_are_written_by_a_run_that_was_killed_and_updated_and_proved(
        self, place: str, changing: Path, tmp_path: Path
    ) -> None:
        limit = ["--records-per-shard", "8"]
        command = ["convert", str(changing), "-o", f"{place}/t-<>.tar", *limit, "-j", "1"]

        def some_are_there() -> bool:
            fresh = open_sink(f"{place}/t-<>.tar")
            return len(list(fresh.walk(fresh.inside(place), nested=False))) >= 4

        options = self.killed_when(some_are_there, command, tmp_path)
        assert "_t-manifest.json" not in self.objects(place)
        done = tar2tf(*command, *options)
        assert done.returncode == 0, done.stderr
        assert "continuing an interrupted run" in done.stderr
        (changing / "s-6.tar").write_bytes(tar_of(5, first=900))
        done = tar2tf(*command, *options, "--update")
        assert done.returncode == 0, done.stderr
        assert "updating: 1 added (s-6.tar)" in done.stderr
        assert tar2tf("convert", changing, "-o", tmp_path / "local/t-<>.tar", *limit, *options).returncode == 0
        assert self.objects(place) == tree(tmp_path / "local")
        done = tar2tf("verify", f"{place}/_t-manifest.json", "--against", changing, "--allow-func")
        assert done.returncode == 0, done.stdout + done.stderr
        assert not os.listdir(tmp_path / "cache" / "tar2tf")

    def claimed(self, place: str, folder: Path, **claim: str) -> None:
        """Have a run on another machine claim the output."""
        (folder / "claim").write_text(json.dumps({"run": "other", "host": "elsewhere", "process": 1, **claim}))
        open_store(place).put(".t-manifest.tar2tf/claim", str(folder / "claim"))

    def test_an_output_that_another_conversion_is_writing_is_refused(
        self, place: str, shards: Path, tmp_path: Path
    ) -> None:
        self.claimed(place, tmp_path, conversion="of something else")
        command = ("convert", shards, "-o", f"{place}/t-<>.record", "--records-per-shard", "50")
        refused = tar2tf(*command)
        assert refused.returncode == 2
        assert "another conversion is writing this output (process 1 on elsewhere)" in refused.stderr
        assert not self.objects(place, required=False)
        assert tar2tf(*command, "--overwrite").returncode == 0
        assert self.objects(place) == self.local(shards, "50")
        assert not self.staged(place)

    def test_the_same_conversion_continues_what_another_machine_has_begun(
        self, place: str, shards: Path, tmp_path: Path, sink: Sink
    ) -> None:
        output = f"{place}/t-<>.record"
        plan = make_plan(Conversion(str(shards), Output(output, records_per_shard=50)))
        self.claimed(place, tmp_path, conversion=Destination(plan, sink).digest)
        done = tar2tf("convert", shards, "-o", output, "--records-per-shard", "50")
        assert done.returncode == 0, done.stderr
        assert self.objects(place) == self.local(shards, "50")

    def test_a_killed_run_continues_where_its_unfinished_work_is_gone(
        self, place: str, shards: Path, tmp_path: Path
    ) -> None:
        """As after a container was started again."""
        limit = ["--records-per-shard", "8", "--index"]
        command = ["convert", str(shards), "-o", f"{place}/t-<>.record", "-j", "1", *limit]
        options = self.killed_when(lambda: len(self.objects(place, required=False)) >= 7, command, tmp_path)
        before = self.settled(place)
        shutil.rmtree(tmp_path / "cache")
        dry = tar2tf(*command, *options, "--dry-run")
        assert f"would continue a killed run, and compare {len(before)} files that it left" in dry.stdout + dry.stderr
        done = tar2tf(*command, *options)
        assert done.returncode == 0, done.stderr
        assert f"continuing a killed run: its working folder is gone, so {len(before)} files" in done.stderr
        assert self.objects(place) == self.local(shards, "8", *options, "--index")
        assert before.items() <= self.versions(place).items()  # none of them was uploaded again
        assert not self.staged(place)

    @pytest.mark.parametrize("name", ["t-2.record", "t-90.record"])
    def test_what_the_killed_run_did_not_write_stays_and_is_an_error(
        self, place: str, shards: Path, tmp_path: Path, sink: Sink, parts: Path, name: str
    ) -> None:
        output = f"{place}/t-<>.record"
        plan = make_plan(Conversion(str(shards), Output(output, records_per_shard=50)))
        self.claimed(place, tmp_path, conversion=Destination(plan, sink).digest)
        self.publish(sink, parts, sink.inside(f"{place}/{name}"), b"precious")
        sink.flush([""])
        refused = tar2tf("convert", shards, "-o", output, "--records-per-shard", "50")
        assert refused.returncode == 2
        assert name in refused.stderr
        there = self.objects(place)
        assert there[name] == b"precious"
        assert "_t-manifest.json" not in there

    def settled(self, place: str) -> dict[str, str | None]:
        """What is there once the server has carried out what a killed run had sent."""
        last: list[dict[str, str | None]] = [{}]

        def is_settled() -> bool:
            before, last[0] = last[0], self.versions(place)
            time.sleep(0.5)
            return before == last[0]

        wait_until(is_settled, "the last requests of a killed run")
        return last[0]

    def versions(self, place: str) -> dict[str, str | None]:
        return {item.name: item.version for item in open_source(place).list(["*"])}

    @pytest.mark.parametrize("how", ["gone", "cut", "other"])
    def test_a_published_shard_that_others_changed_is_an_error_and_is_made_again(
        self, place: str, shards: Path, tmp_path: Path, how: str
    ) -> None:
        command = ("convert", shards, "-o", f"{place}/t-<>.record", "--records-per-shard", "50")
        failed = tar2tf(place, how, *command, code=MEDDLING)
        assert failed.returncode == 3, failed.stderr
        words = {"gone": "is gone", "cut": "has 5 bytes, not the", "other": "does not hold the bytes that were written"}
        assert f"{place}/t-2.record: {words[how]}" in failed.stderr
        assert "_t-manifest.json" not in self.objects(place)
        done = tar2tf(*command)
        assert done.returncode == 0, done.stderr
        assert self.objects(place) == self.local(shards, "50")

    def test_of_two_conversions_into_one_output_one_wins_and_the_other_is_a_usage_error(
        self, place: str, shards: Path, tmp_path: Path
    ) -> None:
        """Each has a cache folder of its own, as on machines of their own."""
        runs = {
            limit: start(
                *("convert", shards, "-o", f"{place}/t-<>.record", "--records-per-shard", limit),
                env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / f"cache-{limit}")},
                stderr=subprocess.PIPE,
            )
            for limit in ("30", "40")
        }
        ends = {limit: (run.communicate()[1], run.returncode) for limit, run in runs.items()}
        winners = [limit for limit, (_, code) in ends.items() if code == 0]
        assert sorted(code for _, code in ends.values()) == [0, 2], ends
        assert self.objects(place) == self.local(shards, winners[0])
        assert not self.staged(place)

    def test_nothing_is_replaced_that_has_just_appeared(self, sink: Sink, place: str, parts: Path) -> None:
        path = sink.inside(f"{place}/t-1.record")
        self.publish(sink, parts, path, b"before")
        sink.flush([""])
        for data, refused in ((b"before", False), (b"after!", True), (b"longer than before", True)):
            (parts / "part").write_bytes(data)
            sink.publish(str(parts / "part"), path, replaces=False)
            with pytest.raises(OutputExistsError, match="another program") if refused else contextlib.nullcontext():
                sink.flush([""])
        assert open_sink(f"{place}/t-<>.record").read(path) == b"before"

    def staged(self, place: str) -> list[str]:
        store = open_store(place)
        return [item.name for item in store.list(".t-manifest.tar2tf/")]

    def killed_when(self, ready: Callable[[], bool], command: list[str], folder: Path) -> list[str]:
        """Kill the command when it is `ready`; its op stops in the middle of the samples until then."""
        module, killed = folder / "gate.py", folder / "killed"
        module.write_text(GATE.format(killed=str(killed)))
        options = ["--op", f"func:{module}:gate"]
        process = start(*command, *options, stderr=subprocess.PIPE)
        try:
            wait_until(ready, "shards in the store", process=process)
            assert process.poll() is None
        finally:
            end(process)
            killed.touch()
        return options

    def killed_while_the_total_is_unknown(self, place: str, shards: Path, folder: Path) -> list[str]:
        """The command, which was killed when most parts were in the bucket, and only the last ones on the disk."""
        command = ["convert", str(shards), "-o", f"{place}/t-<000>-of-<total>.record", "-j", "1"]

        def most_wait_in_the_bucket() -> bool:
            on_disk = list((folder / "cache").glob("tar2tf/*/shard-*.part"))
            return len(self.staged(place)) >= 12 and len(on_disk) <= 6  # four of which are being uploaded

        options = self.killed_when(most_wait_in_the_bucket, [*command, "--records-per-shard", "6"], folder)
        assert not self.objects(place, required=False)
        return [*command, *options]

    def test_shards_wait_for_their_total_in_the_bucket(self, place: str, shards: Path, tmp_path: Path) -> None:
        command = self.killed_while_the_total_is_unknown(place, shards, tmp_path)
        done = tar2tf(*command, "--records-per-shard", "6")
        assert done.returncode == 0, done.stderr
        assert "continuing an interrupted run" in done.stderr
        local = self.local(shards, "6")
        there = self.objects(place)
        assert sorted(there) == ["_t-manifest.json", *(f"t-{number:03d}-of-040.record" for number in range(40))]
        assert [there[name] for name in sorted(there)[1:]] == [local[f"t-{number}.record"] for number in range(1, 41)]
        assert not self.staged(place)
        assert not os.listdir(tmp_path / "cache" / "tar2tf")

    def test_parts_that_wait_in_the_bucket_go_with_an_abandoned_run(
        self, place: str, shards: Path, tmp_path: Path
    ) -> None:
        command = self.killed_while_the_total_is_unknown(place, shards, tmp_path)
        done = tar2tf(*command, "--records-per-shard", "80", "--overwrite")
        assert done.returncode == 0, done.stderr
        assert sorted(self.objects(place)) == ["_t-manifest.json", *(f"t-{n:03d}-of-003.record" for n in range(3))]
        assert not self.staged(place)

    def test_a_failed_upload_is_exit_code_3_and_the_same_command_continues(self, place: str, shards: Path) -> None:
        missing = f"{place.partition('://')[0]}://no-such-bucket-anywhere"
        done = tar2tf("convert", shards, "-o", f"{missing}/t-<>.record")
        assert done.returncode == 3
        assert done.stderr.count("error:") == 1
        assert "Traceback" not in done.stderr

    def assert_the_same_command_continues(
        self, failed: subprocess.CompletedProcess[str], place: str, shards: Path, tmp_path: Path, *words: str
    ) -> None:
        """One clear line, exit code 3, no half shard and no manifest; then the whole."""
        expected = self.local(shards, "30")
        first = failed.stderr.splitlines()[0]
        assert (failed.returncode, failed.stderr.count("error:")) == (3, 1), failed.stderr
        assert all(word in first for word in words), first
        assert "Traceback" not in failed.stderr
        there = self.objects(place, required=False)
        assert "_t-manifest.json" not in there
        assert there.items() <= expected.items()
        again = tar2tf("convert", shards, "-o", f"{place}/t-<>.record", "--records-per-shard", "30")
        assert again.returncode == 0, again.stderr
        assert not there or "continuing an interrupted run" in again.stderr
        assert self.objects(place) == expected
        assert not os.listdir(tmp_path / "cache" / "tar2tf")

    @pytest.mark.parametrize("room", [60_000, 400_000, 900_000])
    def test_a_full_disk_below_the_working_folder_is_told_and_the_same_command_continues(
        self, place: str, shards: Path, tmp_path: Path, room: int
    ) -> None:
        command = ("convert", shards, "-o", f"{place}/t-<>.record", "--records-per-shard", "30", "-j", "1")
        failed = tar2tf(str(room), *command, code=FULL_DISK)
        words = (os.strerror(errno.ENOSPC), str(tmp_path / "cache"))
        self.assert_the_same_command_continues(failed, place, shards, tmp_path, *words)

    def test_a_file_that_may_not_grow_is_told_by_workers_too(self, place: str, shards: Path, tmp_path: Path) -> None:
        command = ("convert", shards, "-o", f"{place}/t-<>.record", "--records-per-shard", "30", "-j", "2")
        failed = tar2tf(*command, file_size=60_000)
        words = (os.strerror(errno.EFBIG), str(tmp_path / "cache"))
        self.assert_the_same_command_continues(failed, place, shards, tmp_path, *words)

    @pytest.mark.parametrize(
        ("fault", "words", "most"),
        [
            ("refused", "permission denied", 0),
            ("refused", "permission denied", 3),
            ("full", "gave up after", 3),
            ("half", "bytes were uploaded, but", 3),
        ],
    )
    def test_a_refused_upload_is_told_and_the_same_command_continues(
        self, place: str, shards: Path, tmp_path: Path, fault: str, words: str, most: int
    ) -> None:
        command = ("convert", shards, "-o", f"{place}/t-<>.record", "--records-per-shard", "30", "-j", "1")
        failed = tar2tf(place, fault, str(most), *command, "--retry-for", "0.3", code=REFUSED_UPLOAD)
        self.assert_the_same_command_continues(failed, place, shards, tmp_path, words, f"{place}/t-")


MEDDLING = """
import os, sys
from tar2tf_cli.cli import main
from tar2tf_cli.sinks.objects import ObjectSink
from tar2tf_cli.stores import open_store
place, how = sys.argv.pop(1), sys.argv.pop(1)
store, check = open_store(place), ObjectSink.changed
def meddle(self, published):
    if how == "gone":
        store.remove("t-2.record")
    else:
        size = store.head("t-2.record").size if how == "other" else 5
        with open("meddled", "wb") as file:
            file.write(b"x" * size)
        store.put("t-2.record", "meddled")
        os.unlink("meddled")
    return check(self, published)
ObjectSink.changed = meddle
main(sys.argv[1:])
"""

GATE = """
import os, time
samples = 0
def gate(sample):
    global samples
    samples += 1
    while samples > 123 and not os.path.exists({killed!r}):
        time.sleep(0.005)
    return sample
"""

FULL_DISK = """
import errno, os, sys
from tar2tf_cli.cli import main
room, writev = int(sys.argv.pop(1)), os.writev
def small_disk(descriptor, parts):
    global room
    data = b"".join(parts)
    taken = writev(descriptor, [data[:max(room, 0)]])  # a full disk takes a part first
    room -= len(data)
    if room < 0:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return taken
os.writev = small_disk
main(sys.argv[1:])
"""

REFUSED_UPLOAD = """
import os, sys
from tar2tf_cli.cli import main
from tar2tf_cli.errors import SourceError
from tar2tf_cli.stores import open_store, retries
place, fault, most = (sys.argv.pop(1) for _ in range(3))
store = type(open_store(place))
put, names = store.put, []
def refuse(self, name, path, **how):
    names.extend([] if name.endswith("/claim") else [name])
    if len(names) <= int(most):
        return put(self, name, path, **how)
    if fault == "refused":
        raise SourceError("permission denied", shard=self.locate(name))
    if fault == "full":
        raise retries.Transient("the server answered 507")
    with open(path + ".half", "wb") as half, open(path, "rb") as whole:
        half.write(whole.read()[:-1000])
    put(self, name, path + ".half")
    os.unlink(path + ".half")
store.put = refuse
main(sys.argv[1:])
"""
