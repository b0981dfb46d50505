"""Decides about files that already exist at the output: keep and continue, replace, or refuse."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from tar2tf_cli.conversion.claim import Claim, JournalEntry, published
from tar2tf_cli.conversion.manifest import Manifest
from tar2tf_cli.conversion.working_folder import WorkingFolder
from tar2tf_cli.errors import DamagedShardError, OutputExistsError
from tar2tf_cli.spec.output_path import PathTemplate, check_replaceable

if TYPE_CHECKING:
    from tar2tf_cli.conversion.changes import InputChanges
    from tar2tf_cli.conversion.earlier import EarlierOutput

__all__ = ["Takeover"]

_ELSEWHERE: Final = "choose another output path"


class Takeover:
    """Finds the files of an earlier run, keeps those of this conversion, refuses others; writes nothing before `begin`.

    Attributes:
        found: normalised paths of existing files that may be replaced.
        stale: normalised paths of files that are removed once the output is whole, unless they are replaced.
        sealed: what an interrupted run noted of whole shards, which may be gone since, by lane and number.
        earlier: the earlier conversion that is brought up to date; None to convert everything.
        changes: how its inputs differ from those now.
        everything: why an update converts everything again; empty if it does not.

    Raises:
        OutputExistsError: when a file that this conversion does not claim is in the way.
    """

    def __init__(self, claim: Claim, folder: WorkingFolder) -> None:
        self._claim = claim
        self._sink = claim.sink
        self._folder = folder
        self.earlier: EarlierOutput | None = None
        self.changes: InputChanges | None = None
        self.everything = ""
        head, entries = folder.read_journal()
        head = head or {"identity": None, "replaces": []}
        self._ours = head["identity"] == claim.identity
        self._continues = self._ours and claim.resumable
        previous = self._checked_previous()
        files = self._inside(previous.files) if previous else set()
        self.found = self._existing()
        self._check_found(files, head["identity"], has_manifest=previous is not None)
        self.stale = self._to_replace(files, head, entries)
        self.sealed: dict[tuple[str, int], JournalEntry] = _sealed(entries) if self._continues else {}
        self._previous: Manifest | None = None  # that of the conversion that is brought up to date
        self._bring_up_to_date(previous, head)

    def begin(self) -> None:
        """Remove what an interrupted run left that this one does not continue, and start the journal."""
        if self._continues:
            self._folder.clear(strays=True)
        else:
            self._folder.clear()
            self._sink.drop_staged()
        self._begin_journal()

    def _bring_up_to_date(self, previous: Manifest | None, head: dict[str, Any]) -> None:
        """Compare with the earlier conversion, if that can save any work."""
        claim = self._claim
        if previous is None and self._ours and "previous" in head:  # killed while it replaced that manifest's files
            previous = Manifest.from_bytes(head["previous"].encode(), claim.where)
        elif previous is None or not claim.update:
            return
        if names := claim.other_options(previous.spec):
            self.everything = f"the options have changed ({', '.join(names[:3])})"
        elif option := claim.plan.why_everything:
            self.everything = f"with {option}, each shard depends on all inputs"
        elif not previous.lineage and previous.inputs:
            self.everything = "the manifest does not say which records came from which input"
        else:
            from tar2tf_cli.conversion.changes import InputChanges
            from tar2tf_cli.conversion.earlier import EarlierOutput

            self.changes = InputChanges.between(previous.inputs, claim.plan.inputs)
            self.earlier = EarlierOutput.of(previous, claim.plan.inputs, claim.lane, claim.is_there)
            self._previous = previous

    def _checked_previous(self) -> Manifest | None:
        """The existing manifest, unless this conversion may not replace it; a damaged one lists nothing."""
        claim, hint = self._claim, None
        try:
            previous = claim.previous()
        except DamagedShardError as error:
            if claim.overwrite:
                return Manifest({}, [])
            reason = f"already exists, and {error.message}"
        else:
            if previous is None or claim.update or claim.overwrite:
                return previous
            if previous.identity() != claim.identity:
                reason, hint = _what_changed(previous, claim)
            elif claim.resumable:
                return previous
            else:
                reason = "already exists, and tar2tf cannot tell whether the input is still the same"
        raise OutputExistsError(reason, shard=claim.where, hint=hint, replaceable=True)

    def _check_found(self, files: set[str], interrupted: dict[str, Any] | None, *, has_manifest: bool) -> None:
        """Raise if something is in the way.

        Args:
            files: what the existing manifest lists.
            interrupted: the identity of an interrupted run.
            has_manifest: whether there is a manifest, which claims the documents beside it.
        """
        documents = {os.path.normpath(path) for path in self._claim.documents if self._sink.exists(path)}
        self._check_irreplaceable(self.found | documents)
        if not (self._ours or _is_same_command(interrupted, self._claim)):  # or it was checked for the journal
            claimed = files | documents if has_manifest else files
            self._check_foreign(self.found | documents, claimed, interrupted=interrupted is not None)

    def _to_replace(self, files: set[str], head: dict[str, Any], entries: list[Any]) -> set[str]:
        """What is there of an earlier conversion's files, and of those that another interrupted run published."""
        replaced = self._inside(head["replaces"])
        if not self._ours:
            replaced |= files | self._inside(path for entry in entries for path in published(entry))
        return {path for path in replaced if self._sink.exists(path)}

    def _existing(self) -> set[str]:
        """Normalised paths of existing files that match the template, including indexes if they are wanted.

        Raises:
            OutputExistsError: when one of them is a folder.
        """
        claim = self._claim
        text = claim.template.text.removeprefix(claim.prefix)
        regex = PathTemplate.parse(text).regex()
        exact = not claim.template.fields & {"split", "input"}  # otherwise a folder could match by accident
        found = set()
        for relative, is_folder in self._sink.walk(claim.root, nested="/" in text):
            if is_folder and not exact:
                continue
            if regex.match(relative) or (claim.with_index and regex.match(relative.removesuffix(".idx"))):
                path = os.path.normpath(os.path.join(claim.root, relative))
                if is_folder:
                    hint = f"remove it, or {_ELSEWHERE}"
                    raise OutputExistsError("is a directory, but a file is to be written here", shard=path, hint=hint)
                found.add(path)
        return found - {os.path.normpath(claim.manifest)}

    def _check_irreplaceable(self, paths: set[str]) -> None:
        """Raise if an input, a device or a pipe would be replaced."""
        plan = self._claim.plan
        inputs = {_file(path) for path in plan.source.paths(plan.inputs)} if paths else set()
        for where in map(self._sink.locate, sorted(paths)):
            if _file(where) in inputs:
                raise OutputExistsError("is an input of this conversion", shard=where, hint=_ELSEWHERE)
            check_replaceable(where)

    def _check_foreign(self, paths: set[str], claimed: set[str], *, interrupted: bool) -> None:
        """Raise if files that this conversion does not claim would be replaced."""
        foreign = sorted(path for path in paths - claimed if path.removesuffix(".idx") not in claimed)
        if foreign and not self._claim.overwrite:
            left = "was left by an interrupted run with other options"
            reason = left if interrupted else "already exists, and no manifest of this conversion lists it"
            raise OutputExistsError(reason, shard=self._sink.locate(foreign[0]), replaceable=True)

    def _begin_journal(self) -> None:
        """Start a new journal, with the manifest that is brought up to date: it is gone while files are replaced."""
        replaces = sorted(os.path.relpath(path, self._claim.root) for path in self.stale)
        head = {"identity": self._claim.identity, "replaces": replaces}
        if self._previous:
            head["previous"] = self._previous.to_bytes().decode("ascii")
        self._folder.begin_journal(head, keep=self._ours)

    def _inside(self, paths: Iterable[str]) -> set[str]:
        """Normalised paths of the files listed in a manifest or journal, without any that lead outside its folder."""
        inside = (os.path.normpath(path) for path in paths if not os.path.isabs(path))
        root = self._claim.root
        return {os.path.normpath(os.path.join(root, path)) for path in inside if path.split(os.sep)[0] != ".."}


def _what_changed(previous: Manifest, claim: Claim) -> tuple[str, str | None]:
    """What differs from an earlier conversion; and a hint, if there is more to do about it than `--overwrite`."""
    from tar2tf_cli.conversion.changes import InputChanges, differing

    hint = "pass --update to redo only what changed, --overwrite to replace everything, or choose another output path"
    names = claim.other_options(previous.spec)
    if not names and previous.identity()["inputs"] != claim.identity["inputs"]:
        return f"was made from other inputs: {InputChanges.between(previous.inputs, claim.plan.inputs)}", hint
    found = names or differing(previous.spec, claim.identity["spec"])
    return f"was made with other options: {', '.join(found[:3])} changed", None if names else hint


def _sealed(entries: list[Any]) -> dict[tuple[str, int], JournalEntry]:
    """The entries of whole shards, by lane and number."""
    return {(entry[0], entry[1]): entry for entry in entries if type(entry) is list and len(entry) == 6}


def _is_same_command(identity: dict[str, Any] | None, claim: Claim) -> bool:
    """Whether an interrupted run was of the same conversion, perhaps of other inputs."""
    if identity is None or identity["version"] != claim.identity["version"]:
        return False
    return not claim.other_options(identity["spec"])


def _file(path: str) -> tuple[int, int] | str:
    """A key that is equal for two paths to the same file."""
    try:
        status = os.stat(path)
    except OSError:
        return path
    return status.st_dev, status.st_ino
