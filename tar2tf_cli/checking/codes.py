"""The codes of faults and errors: meaning, usual causes and remedies.

`tar2tf explain` prints these texts, and `docs/faq.md` and the table of `docs/reference/inspect-verify.md` are generated
from them by `python man/generate.py`.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Explanation(NamedTuple):
    """The explanation of a code.

    Attributes:
        means: the meaning as a clause, for tables of codes.
        causes: sentences about the usual causes.
        remedy: sentences about what to do.
    """

    means: str
    causes: str
    remedy: str

    def to_json(self, code: str) -> dict[str, str]:
        """Return the explanation of a code as plain JSON."""
        return {"code": code, **self._asdict()}


_COPY: Final = "Copy the shard again from an intact copy, or convert again with `--overwrite`."
_COMPRESSED: Final = Explanation(
    "a compressed stream is damaged or cut short",
    "The checksum or the structure of the stream does not match its bytes: a download stopped early, or a disk or a "
    "copy changed them.",
    "Download or copy the file again. Everything before the damage can be read: `convert --on-error skip` and "
    "`verify --salvage` keep it.",
)

EXPLANATIONS: Final[dict[str, Explanation]] = {
    "bad_header": Explanation(
        "a header of a tar is damaged",
        "The checksum of a member's header does not match: bytes were overwritten, or the file is not a tar from there "
        "on.",
        "Download the tar again. `convert --on-error skip` resumes at the next header, and reports how much was lost.",
    ),
    "box": Explanation(
        "a box or class of the Object Detection API that breaks training",
        "A box has no area, leaves its image, or has a number that is not finite, or a class is 0, the background.",
        "Correct the annotations, or convert again with `--invalid-boxes drop`.",
    ),
    "bzip2": _COMPRESSED,
    "changed": Explanation(
        "a record differs from its source sample, converted again",
        "The source changed after the conversion, or the shard did; the features that differ are named.",
        "If the source is correct, convert again with `--update`. If the shard is, restore the source.",
    ),
    "check_failed": Explanation(
        "a check of your own, in `checking/checks/`, raised an exception",
        "The function that you added is wrong, or did not expect this record.",
        "Correct the function: the message contains its exception.",
    ),
    "count": Explanation(
        "a number of records or features differs from the manifest",
        "Shards of two conversions are in one folder, or a shard was replaced or cut at a record's end.",
        "Convert again with `--overwrite`, which restores the shards that the manifest lists.",
    ),
    "damaged": Explanation(
        "a shard, or the answer of a server, is damaged in a way without a specific code",
        "The message describes the damage.",
        "Download the shard again, or repeat the request.",
    ),
    "data_crc": Explanation(
        "the CRC of a record's data does not match",
        "A disk, a copy or a program changed the record after it was written.",
        "Copy the shard again from an undamaged copy. If there is none, convert again with `--overwrite`; the other "
        "shards get the same bytes as before. If the source is gone too, `--salvage good.record` writes the good "
        "records to a new file.",
    ),
    "digest": Explanation(
        "a file's digest differs from the manifest, or from a list of checksums",
        "The file's bytes changed after the conversion or the transfer, or the manifest or list did.",
        _COPY,
    ),
    "doubled": Explanation(
        "a source sample is in the output more than once",
        "Parts of a conversion overlap, or shards of two conversions are verified together.",
        "Compare the inputs that the manifests list; `convert --drop-duplicates` writes each sample once.",
    ),
    "duplicate_key": Explanation(
        "a tar has the same member twice in one sample",
        "Two members have the same name, for example after `tar --append`, or their extensions differ only in case.",
        "Remove one of them; tar2tf does not guess which.",
    ),
    "empty": Explanation(
        "a file is empty, or a tar has no samples",
        "A download or a writer failed, or the members of the tar are not named `KEY.EXTENSION`, such as `0001.jpg`.",
        "`tar tf FILE` lists the names, and `tar2tf inspect` shows the resulting samples. If empty TFRecords are "
        "expected, pass `--allow-empty` to `verify`.",
    ),
    "gap": Explanation(
        "the numbering of shards has a gap",
        "A shard was not copied, was deleted, or was never written; a name such as `x-00002-of-00004` states how many "
        "there are.",
        "Copy the missing shard, or convert again. If the gap is intended, name the shards one by one, or pass "
        "`--ignore-gaps` to `convert`.",
    ),
    "gzip": _COMPRESSED,
    "half_sample": Explanation(
        "the last sample lacks entries that all others have, and the tar has no proper end",
        "The program that wrote the tar stopped in the middle of a sample. If the tar has a proper end, this is only a "
        "note.",
        "Recreate the shard. To reject such samples in any tar, select the entries that each must have "
        "(`--select jpg,cls`).",
    ),
    "index": Explanation(
        "the offsets in `SHARD.idx`, next to a local shard, are wrong",
        "The shard was written again after its index, or the index is of another file.",
        "Rewrite it: `tar2tf index SHARD --overwrite`.",
    ),
    "lacking": Explanation(
        "a sample lacks an entry or a feature that an option names",
        "The entry has another name in this sample, or the sample is incomplete.",
        "`tar2tf inspect` lists the entries, and how many samples have each. If an entry has different names in "
        "different samples, give it one name: `--op rename:image=jpg,jpeg`.",
    ),
    "length_crc": Explanation(
        "the CRC of a record's length does not match",
        "The frame of a record was overwritten, or the file is not a TFRecord from there on. It may be compressed: "
        "`tar2tf` detects this; TensorFlow needs `compression_type`.",
        f"{_COPY} `verify --salvage` writes the records before and after the damage to a new file.",
    ),
    "link": Explanation(
        "an entry is a link that cannot be followed",
        "The tar was made without `--dereference`, and the link's target is not an earlier member of the same tar.",
        "Recreate the tar with `tar --dereference`.",
    ),
    "lost": Explanation(
        "part of an input could not be read during the conversion, so its samples are not in the shards",
        "`convert --on-error skip` skipped a damaged part of an input.",
        "Download the input again, then run the conversion with `--update`.",
    ),
    "manifest": Explanation(
        "a manifest is damaged, or of a newer version",
        "It was edited or cut short, or another version of tar2tf wrote it.",
        "Restore it from a copy, update tar2tf, or convert again.",
    ),
    "missing": Explanation(
        "a shard or sample is missing",
        "The file was deleted, renamed or never copied; with `--against`, a sample of the source is not in the output.",
        "Copy the missing file, or run the same conversion again: it makes only what is missing.",
    ),
    "name": Explanation(
        "the name of an entry is not UTF-8, as a feature's name must be",
        "The tar was written on a system with another encoding.",
        "Give the members other names, or rename entries with `--op rename`.",
    ),
    "not_adjacent": Explanation(
        "members of one sample are not adjacent in their tar",
        "`tar cf x.tar FOLDER` writes files in directory order, so other members may be between the members of a "
        "sample.",
        "tar2tf reads such a tar twice, and nothing is lost. Standard input can be read only once: `--regroup` "
        "keeps it in a temporary file. Tars made with `tar --sort=name` need neither.",
    ),
    "not_an_example": Explanation(
        "a record is not a tf.train.Example",
        "The file contains messages of another kind, such as your own protos, among examples, or bytes that happen to "
        "have the right CRC.",
        "If other messages are intended, pass `--messages any`: framing and CRCs are then checked, not contents.",
    ),
    "reader": Explanation(
        "a reader named by `--for` rejects or misreads these shards",
        "The message names the cause in the reader's current version.",
        "Convert the shards as the message says, or use another reader.",
    ),
    "schema": Explanation(
        "a feature differs from the manifest",
        "The shard is of another conversion, with other types or selections, or the manifest was edited.",
        "Restore the manifest from a copy, or convert again with `--overwrite`.",
    ),
    "size": Explanation(
        "a file's size differs from the manifest or the listing",
        "A copy stopped early, or the file was written again.",
        _COPY,
    ),
    "skipped": Explanation(
        "the conversion skipped faulty samples, which are not in the shards",
        "It ran with `--on-error skip`.",
        "`--errors FILE` lists them; correct them, and run the conversion with `--update`.",
    ),
    "sparse": Explanation(
        "an entry is stored as a sparse file, which cannot be read",
        "The tar was made with `tar --sparse`.",
        "Recreate the tar without it.",
    ),
    "stray": Explanation(
        "a shard is not in the manifest",
        "Shards of an earlier or unfinished conversion remain in the folder.",
        "Delete them, or move them elsewhere: readers that list the folder would read them, too.",
    ),
    "too_large": Explanation(
        "a record is larger than an example may be",
        "A length claims 2 GiB or more, which protobuf cannot hold; usually the length is damaged.",
        "Copy the shard again. If samples are that large, convert to tars: `--to tar`.",
    ),
    "totals": Explanation(
        "two shards of one series state different totals",
        "Shards of two conversions, such as `x-00000-of-00002` and `x-00000-of-00003`, are in one folder.",
        "Move the shards of one set to another folder, or name one set with a template such as `'*-of-00003'`.",
    ),
    "trailing_garbage": Explanation(
        "there are bytes after the last record, or after a compressed stream, which TensorFlow cannot read",
        "Another file was appended, or a block of a disk was not cut to size.",
        "`verify --salvage` writes the records without them.",
    ),
    "truncated": Explanation(
        "a file is cut short",
        "A download or copy stopped early, or its writer did. A tar ends with two blocks of zeros; without them, most "
        "readers cannot tell a tar that was cut between two members from a shorter dataset.",
        "Download the file again. `tar2tf verify FOLDER` checks many at once, and `tar2tf verify s3://bucket/shards` "
        "shows whether the original is intact. If there is no intact copy, `--on-error skip` converts the samples that "
        "can be read, and reports how much was lost. If a writer never adds the end-of-archive blocks, pass "
        "`--ignore-missing-end`.",
    ),
    "undecodable": Explanation(
        "an entry cannot be decoded as an image, sound or array, or an op cannot work on it",
        "The value is cut short or damaged, or is not what its name says, such as an error page that a "
        "crawler saved. The content decides what can be decoded, not the name. Or an op needs pixels, and no `decode` "
        "comes before it.",
        "Replace the value, or skip such samples with `--on-error skip`. Without `decode`, entries are stored "
        "unchanged.",
    ),
    "unexpected": Explanation(
        "a record was not made from a source sample",
        "The source lacks a sample that it had, or shards of another conversion are verified with it.",
        "Verify against the source that the manifest names, or convert again with `--update`.",
    ),
    "unfinished": Explanation(
        "a conversion over these shards is not finished",
        "It was interrupted, or is running now: some shards may be missing, or belong to an earlier conversion.",
        "Run the same `convert` command again, which continues. If you do not want it, delete the hidden folder that "
        "the fault names.",
    ),
    "unknown_format": Explanation(
        "a file is neither a tar nor a TFRecord",
        "It is of another format, a Git LFS pointer, or an error page that was saved under the name of a shard; or its "
        "first bytes are damaged. The content counts, not the name.",
        "The message quotes or names what it is. Fetch the shard itself, or unpack another archive and make a tar "
        "of its contents, such as `tar cf x.tar --sort=name -C FOLDER .`.",
    ),
    "unknown_type": Explanation(
        "an entry is a member of unknown type",
        "The tar contains a device, a pipe, or a kind of member that only its writer knows.",
        "Recreate the tar with plain files.",
    ),
    "unreadable": Explanation(
        "a file cannot be read",
        "Its permissions, its disk, or the server that holds it; the message gives the reason.",
        "Fix the cause, then run the same command, which continues.",
    ),
    "volume": Explanation(
        "an entry is part of a file that begins in another volume of a multi-volume tar",
        "The tar was made with `tar --multi-volume`.",
        "Join the volumes with `tar --multi-volume` and make one tar.",
    ),
    "xz": _COMPRESSED,
    "zeroed": Explanation(
        "part of a tar is zeros",
        "The file has its full size, but only part of its data: a download allocated the space first, and did not "
        "finish, or a disk lost blocks.",
        "Download the tar again.",
    ),
    "zlib": _COMPRESSED,
    "zstd": _COMPRESSED,
}
"""The explanation of each code, in the order of the codes."""
