"""Tar to TFRecord as a chain of stages in Python, any of which may be your own.

    from tar2tf_cli.pipeline import Pipeline, by_key, rename, select

    Pipeline().from_tar("train-0.tar").sample_to_tf_example({"cls": "int64"}).to_tf_record("train-0.record").do()

    (
        Pipeline()
        .from_tar_gz(stream)
        .transform_samples(rename("image", ["jpg", "jpeg"]), select(by_key("image"), by_key("cls")))
        .filter_empty_samples()
        .sample_to_tf_example({"cls": "int64"})
        .to_tf_record("train.record", num_workers=2)
        .do()
    )

| stage | from | to | made by |
|---|---|---|---|
| `TarStage` | nothing | samples | `from_tar`, `from_tar_gz`, `with_tar_stage` |
| `SamplesStage` | samples | samples | `transform_samples`, `filter_empty_samples`, `with_samples_stage` |
| `Sample2TFExampleStage` | samples | examples | `sample_to_tf_example`, `with_sample2tfexample_stage` |
| `TFExamplesStage` | examples | examples | `transform_tf_examples`, `filter_empty_examples`, `with_tfexamples_stage` |
| `TFRecordStage` | examples | nothing | `to_tf_record`, `with_tfrecord_stage` |

The methods may be called in any order. The first, third and last stage are required and may be set only once; any
number of the others may be added, and they run in this order. A sample is a dict of bytes by extension with a string
`__key__`; an example is a `TFExample`. Nothing is read before `do()`; then each stage pulls items from the previous
one.

A custom stage is a function from an iterator to an iterator. It may be lazy (a generator), eager (it reads everything
and returns a list) or read ahead. One that counts:

    def logged(samples):
        for count, sample in enumerate(samples, 1):
            yield sample
            if count % 1000 == 0:
                print(f"{count:,} samples")

    Pipeline().from_tar(tar).with_samples_stage(logged).sample_to_tf_example().to_tf_record(out).do()

One that sends samples to an HTTP service, with eight requests in flight, and yields the results in order:

    from collections import deque
    from concurrent.futures import ThreadPoolExecutor
    from urllib.request import Request, urlopen

    def asked(sample):
        with urlopen(Request(url, sample["jpg"]), timeout=30) as answer:
            return {**sample, "jpg": answer.read()}

    def through_service(samples):
        with ThreadPoolExecutor(8) as threads:
            waiting = deque()
            for sample in samples:
                waiting.append(threads.submit(asked, sample))
                if len(waiting) == 8:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()

    Pipeline().from_tar(tar).with_samples_stage(through_service).sample_to_tf_example().to_tf_record(out).do()

A pipeline reads tars, groups samples and writes examples with the code of `tar2tf convert`, so records and errors are
the same, byte for byte: errors for truncated tars, incomplete or repeated samples, and values that do not match their
type. `do()` raises the error of a stage even if a later custom stage has swallowed it.

To look at samples instead of writing them, end with `samples()`:

    for sample in Pipeline().from_tar("train-0.tar").transform_samples(rename("image", ["jpg", "jpeg"])).samples():
        print(sample["__key__"], len(sample["image"]))

Output to an open file is kept in a temporary folder until it is complete, so that nothing is written after an error.

A path with a field, or a limit, gives shards:

    done = (
        Pipeline(on_error="skip")
        .from_tar("shards")
        .transform_samples(rename("image", ["jpg", "jpeg"]))
        .sample_to_tf_example({"cls": "int64"})
        .to_tf_record("out/train-<>.record", max_shard_size="100MB", num_workers=4)
        .do()
    )
    train = load_dataset(done.manifest)

The shards are byte for byte the same as from `tar2tf convert` with the same settings, and the manifest next to them
works with `tar2tf verify` and `load_dataset`. Running the same program again continues a run that was killed, and does
nothing if the run was finished; `done.up_to_date` is then true. If inputs, stages or settings have changed, it raises
an error unless you pass `overwrite=True`.

- Tars given by path, without custom stages: each tar is an input of its own, `num_workers` processes work on several
  at once, and a run that continues does not repeat finished tars. Your functions are called in these processes; with
  one worker, in the calling process.
- With a custom stage or an open file, the whole stream is one input, which is read to its end before the first shard
  appears. `num_workers` is a number of threads, the path cannot contain `<input>`, and a run that is killed before the
  end of the stream starts again from the beginning. With compression and a limit, shards hold the same records as
  those of `convert`, but in gzip blocks of other lengths.

Your functions and stages are identified by their name, the file that defines them and the values they are bound to:
numbers, strings, lists and dicts of these, and functions of the same file. (If a start time is among them, every run is
a different one.) The modules that they import are assumed not to change, and stages to give the same results for the
same tars. A function that is bound to any other object, is a method or is not defined in a file (as in a notebook)
cannot be identified, and neither can the samples of a pipe or of a custom TarStage: such a run starts again after a
kill, and once it is finished, running it again raises an error unless you pass `overwrite=True`.
"""

from __future__ import annotations

from tar2tf_cli.api.values import Sample
from tar2tf_cli.compat.file_objects import TFRecordReader, TFRecordWriter
from tar2tf_cli.compat.pipeline import (
    Pipeline,
    PipelineSummary,
    Sample2TFExampleStage,
    SamplesStage,
    TarStage,
    TFExamplesStage,
    TFRecordStage,
)
from tar2tf_cli.compat.transformations import (
    by_example_f,
    by_key,
    by_key_value,
    by_prefix,
    by_sample_f,
    by_substring,
    by_suffix,
    example_f,
    id,
    rename,
    sample_f,
    select,
)
from tar2tf_cli.features.tf_example import TFExample

__all__ = [
    "Pipeline",
    "PipelineSummary",
    "Sample",
    "Sample2TFExampleStage",
    "SamplesStage",
    "TFExample",
    "TFExamplesStage",
    "TFRecordReader",
    "TFRecordStage",
    "TFRecordWriter",
    "TarStage",
    "by_example_f",
    "by_key",
    "by_key_value",
    "by_prefix",
    "by_sample_f",
    "by_substring",
    "by_suffix",
    "example_f",
    "id",
    "rename",
    "sample_f",
    "select",
]
