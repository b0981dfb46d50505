"""The part of a conversion that a transformer gets: all that determines the records of one input, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypeAlias

from tar2tf_cli.errors import UsageError
from tar2tf_cli.formats.checksums import blake2b
from tar2tf_cli.spec import yaml_file
from tar2tf_cli.spec.conversion import Conversion
from tar2tf_cli.spec.version import __version__

ENVIRONMENT: Final = "TAR2TF_ETL_SETTINGS"
"""The variable from which a transformer reads its settings."""

TARGET: Final = "AIS_TARGET_URL"
"""The variable with the URL of the pod's target, which the cluster sets."""

NODES: Final = "TAR2TF_ETL_NODES"
"""The variable with addresses of nodes of the cluster, separated by commas; they know the others."""

_ELSEWHERE: Final = ("output", "shuffle", "split", "max_errors", "max_lost")
"""What happens to records after they were made, or to the results of several inputs."""

_BUCKET: Final = {"bucket": "-"}
_OUTPUT: Final = "<split>-<>.record"
"""The bucket and the output that a conversion must have, and a transformer does not use."""


@dataclass(frozen=True)
class Settings:
    """The settings of a transformer.

    Attributes:
        spec: the canonical spec without what does not concern a single input.
        keys: whether the key of each sample is sent, which decides about its split.
        samples: whether samples are sent as the ops leave them, rather than examples.
    """

    spec: Mapping[str, Any]
    keys: bool = False
    samples: bool = False

    @classmethod
    def of(cls, conversion: Conversion, *, samples: bool = False) -> Settings:
        """The settings for a conversion.

        Raises:
            UsageError: when it runs Python code of the user, or its inputs are not tars.
        """
        if conversion.runs_own_code:
            raise _refused()
        if conversion.input.kind != "tar":
            raise UsageError("a cluster converts only tars", hint="leave out --from, or convert without --remote-exec")
        spec = {name: value for name, value in conversion.canonical().items() if name not in _ELSEWHERE}
        spec["input"] = {name: value for name, value in spec["input"].items() if name not in ("bucket", "template")}
        if conversion.shuffle:
            spec.pop("limit", None)  # which then takes samples of all inputs
        return cls({name: value for name, value in spec.items() if value != {}}, bool(conversion.split), samples)

    @classmethod
    def load(cls, text: str) -> Settings:
        """The settings that `text` returned as text.

        Raises:
            UsageError: when they are not valid, or of another version.
        """
        try:
            whole = json.loads(text)
            version, settings = whole["version"], cls(whole["spec"], bool(whole["keys"]), bool(whole.get("samples")))
        except (ValueError, KeyError, TypeError):
            raise UsageError(f"{ENVIRONMENT} does not hold the settings of a transformer") from None
        if version != __version__:
            raise UsageError(
                f"the settings were made by tar2tf {version}, but this is {__version__}",
                hint="use an image with the version of the client",
            )
        _refuse_python(settings.spec)
        if found := [message for _, message in yaml_file.problems(settings.spec)]:
            raise UsageError(f"{ENVIRONMENT}: {'; '.join(found)}")
        cls.of(settings.conversion())
        return settings

    @classmethod
    def of_file(cls, spec: yaml_file.SpecFile) -> Settings:
        """The settings for the conversion of a spec file, which may leave out its input and output.

        Raises:
            UsageError: when the file has problems, or what it describes cannot be done in a cluster.
        """
        _refuse_python(spec.data)
        spec.check()
        output = {"path": _OUTPUT if spec.data.get("split") else "-"}
        return cls.of(yaml_file.build({**yaml_file.overlaid({"input": _BUCKET}, spec.data), "output": output}))

    @property
    def text(self) -> str:
        """The settings as JSON, the same for equal settings."""
        whole = {"version": __version__, **vars(self)}
        return json.dumps(whole, sort_keys=True, separators=(",", ":"))

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal digits that are equal for equal settings of the same version."""
        return blake2b(self.text.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()

    @property
    def name(self) -> str:
        """The name of the transformer."""
        return f"tar2tf-{self.digest}"

    def conversion(self) -> Conversion:
        """The conversion by which a transformer reads one input."""
        return yaml_file.build(yaml_file.overlaid({"input": _BUCKET, "output": {"path": "-"}}, self.spec))


Part: TypeAlias = Literal["", "records", "end"]


@dataclass(frozen=True)
class Asked:
    """What one request may ask a transformer for, as its `etl_args`.

    Attributes:
        first: the object is the conversion's first input: a typed feature that none of its samples has is wrong usage.
        part: "records" for a file of records, which the cluster stores, and "end" for the end record that they would
            have had; by default both, one after the other.
    """

    first: bool = False
    part: Part = ""

    @classmethod
    def load(cls, text: str) -> Asked:
        """What `text` returned as text; anything else in it is meant for other transformers."""
        try:
            asked = json.loads(text)["tar2tf"]
            return cls(bool(asked.get("first")), asked.get("part", ""))
        except (ValueError, KeyError, TypeError, AttributeError):
            return cls()

    @property
    def text(self) -> str:
        """The request as JSON; empty if it asks for nothing."""
        given = {name: value for name, value in asdict(self).items() if value}
        return json.dumps({"tar2tf": given}, separators=(",", ":")) if given else ""


def _refuse_python(spec: Mapping[str, Any]) -> None:
    """Refuse the op func before it is looked at, which would be to import what it names."""
    for op in spec.get("ops") or ():
        if (op if isinstance(op, str) else str(next(iter(op), ""))).partition(":")[0] == "func":
            raise _refused()


def _refused() -> UsageError:
    return UsageError(
        "a cluster does not run your Python code: the op func and functions cannot be used there",
        hint="leave them out, or convert without --remote-exec",
    )
