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

The methods may be called in any order. The first, third and last stage there must be exactly once; of the others any
number, which follow each other as they were added. A sample is a dict of bytes by extension with its `__key__`, a
text; an example is a `TFExample`. Nothing is read before `do()`, and from then on each stage pulls from the one before.

A stage of your own is a function from iterator to iterator. It may be lazy (a generator), eager (it reads all and
gives a list) or fetch ahead of what it is asked for. One that counts:

    def logged(samples):
        for count, sample in enumerate(samples, 1):
            yield sample
            if count % 1000 == 0:
                print(f"{count:,} samples")

    Pipeline().from_tar(tar).with_samples_stage(logged).sample_to_tf_example().to_tf_record(out).do()

One that sends samples to an HTTP service and takes them back, eight on their way at any time, in order:

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

Tars are read, samples grouped and examples written by the code of `tar2tf convert`, so the records are the same, byte
for byte, and so are the errors: for a tar that is cut short, half and repeated samples, values that are not of their
type. An error of a stage is raised by `do()` even if a later stage of your own has swallowed it.

What goes to an open file waits in a temporary folder until all of it is made, so that an error leaves nothing there.

Shards come of a path with a field, or of a limit:

    done = (
        Pipeline(on_error="skip")
        .from_tar("shards")
        .transform_samples(rename("image", ["jpg", "jpeg"]))
        .sample_to_tf_example({"cls": "int64"})
        .to_tf_record("out/train-<>.record", max_shard_size="100MB", num_workers=4)
        .do()
    )
    train = load_dataset(done.manifest)

They are the bytes that `tar2tf convert` writes with the same settings, and the manifest beside them is for `tar2tf
verify` and `load_dataset`. The same program continues a run that was killed, and does nothing when the run was
finished; then `done.up_to_date` is true. When inputs, stages or settings have changed, it refuses to go on without
`overwrite=True`.

- Tars given by path, and no stage of your own: each tar is an input by itself, `num_workers` processes work on several,
  and a run that continues does no finished tar again. Functions of your own are called in these processes, in this one
  when there is one worker.
- A stage of your own, or an open file: the whole stream is one input, which is read to its end before the first shard
  appears. `num_workers` are threads, `<input>` cannot be in the path, and a run that is killed before the end of the
  stream begins at its front. With compression and a limit, shards hold the records of `convert` in gzip blocks of
  other lengths.

Functions and stages of your own are known again by their name, by the file they stand in and by what they are bound to:
numbers, texts, lists and dicts of such, functions of the same file. (A starting time among them makes every run another
one.) Modules that they import are taken to be the same, and stages to give the same for the same tars. What is bound to
any other object, is a method of one or stands in no file, as in a notebook, cannot be known again, and nor can the
samples of an open file or of a TarStage of your own: such a run begins anew after a kill, and is refused without
`overwrite=True` when it was finished.
"""

from __future__ import annotations

from tar2tf_cli.features.tf_example import TFExample
from tar2tf_cli.features.transformations import (
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
from tar2tf_cli.pipeline.builder import (
    Pipeline,
    Sample2TFExampleStage,
    SamplesStage,
    TarStage,
    TFExamplesStage,
    TFRecordStage,
)
from tar2tf_cli.pipeline.shards import PipelineSummary
from tar2tf_cli.pipeline.tfrecord_io import TFRecordReader, TFRecordWriter
from tar2tf_cli.samples.grouping import Sample

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
