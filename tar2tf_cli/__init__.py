"""Turn shards of samples (tar) into TFRecord shards, and verify that both are intact.

Convert:   convert(Conversion(Input(...), Output(...))) -> Summary, with Events for progress
Check:     verify(...) -> Report of FileReport of Fault; inspect(...) -> Contents; diff(A, B) -> Differences
Train:     load_dataset(MANIFEST), default_record_parser, Dataset and AisDataset (the AIS tar2tf client)
Read:      open_records(MANIFEST) -> Records, in any order and without TensorFlow, for grain, torch and Keras
Stages:    Pipeline(...).do() -> PipelineSummary, TFRecordReader, TFRecordWriter (go-tfdata)
Errors:    Tar2tfError, the base of all in tar2tf_cli.errors
Ops:       tar2tf_cli.ops; examples described by rows: tar2tf_cli.recorder
"""

from __future__ import annotations

from importlib import import_module

from tar2tf_cli.spec import __version__ as __version__

TYPE_CHECKING = False  # typing takes a while to import, during which Ctrl-C is not handled yet
if TYPE_CHECKING:
    from typing import Final

    from tar2tf_cli.checking.contents import Contents as Contents
    from tar2tf_cli.checking.diff import Difference as Difference
    from tar2tf_cli.checking.diff import Differences as Differences
    from tar2tf_cli.checking.diff import diff as diff
    from tar2tf_cli.checking.faults import Fault as Fault
    from tar2tf_cli.checking.faults import FileReport as FileReport
    from tar2tf_cli.checking.faults import Report as Report
    from tar2tf_cli.checking.inspect import inspect as inspect
    from tar2tf_cli.checking.verify import verify as verify
    from tar2tf_cli.compat.dataset import AisDataset as AisDataset
    from tar2tf_cli.compat.dataset import Dataset as Dataset
    from tar2tf_cli.compat.dataset import default_record_parser as default_record_parser
    from tar2tf_cli.compat.file_objects import TFRecordReader as TFRecordReader
    from tar2tf_cli.compat.file_objects import TFRecordWriter as TFRecordWriter
    from tar2tf_cli.compat.pipeline import Pipeline as Pipeline
    from tar2tf_cli.compat.pipeline import PipelineSummary as PipelineSummary
    from tar2tf_cli.conversion.publish import Summary as Summary
    from tar2tf_cli.conversion.run import convert as convert
    from tar2tf_cli.datasets.load import load_dataset as load_dataset
    from tar2tf_cli.datasets.records import Records as Records
    from tar2tf_cli.datasets.records import open_records as open_records
    from tar2tf_cli.errors import Tar2tfError as Tar2tfError
    from tar2tf_cli.events import Events as Events
    from tar2tf_cli.spec.conversion import Conversion as Conversion
    from tar2tf_cli.spec.conversion import Input as Input
    from tar2tf_cli.spec.conversion import Output as Output

_NAMES: Final = {
    "checking.contents": ("Contents",),
    "checking.diff": ("Difference", "Differences", "diff"),
    "checking.inspect": ("inspect",),
    "checking.faults": ("Fault", "FileReport", "Report"),
    "checking.verify": ("verify",),
    "conversion.run": ("convert",),
    "conversion.publish": ("Summary",),
    "compat.dataset": ("AisDataset", "Dataset", "default_record_parser"),
    "datasets.load": ("load_dataset",),
    "datasets.records": ("Records", "open_records"),
    "errors": ("Tar2tfError",),
    "events": ("Events",),
    "pipeline": ("Pipeline", "PipelineSummary", "TFRecordReader", "TFRecordWriter"),
    "spec.conversion": ("Conversion", "Input", "Output"),
}
_HOMES: Final = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    """Import a public name from its module on first access."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
