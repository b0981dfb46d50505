"""Client for the transformers (ETLs) of an AIStore cluster: pods on its targets' nodes that transform objects.

Like the methods of a store, methods send one request without retries unless documented otherwise. The API is described
at https://aistore.nvidia.com/docs/etl; it needs a cluster on Kubernetes.
"""

from __future__ import annotations

import base64
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypedDict, TypeVar, cast

from tar2tf_cli.api.objects import ObjectInfo
from tar2tf_cli.api.store import Body, Store, Transient
from tar2tf_cli.errors import RemoteError, SourceError, UsageError, did_you_mean
from tar2tf_cli.remote.stream import DONE, ENVIRONMENT, NODES, Settings, error_of
from tar2tf_cli.spec import __version__
from tar2tf_cli.spec.yaml_file import SpecFile
from tar2tf_cli.stores import open_source, open_store
from tar2tf_cli.stores.ais import LOGIN, AisStore, message_of
from tar2tf_cli.stores.control import Answer, parsed
from tar2tf_cli.stores.curl import Response
from tar2tf_cli.stores.objects import retry
from tar2tf_cli.stores.retries import call_with_retries
from tar2tf_cli.stores.web import text_of

LOCALLY: Final = "convert where the command runs: --no-remote-exec"
_NO_KUBERNETES: Final = re.compile("requires Kubernetes|k8s client is not initialized")
_GONE: Final = "{name} does not exist|ETL {name} doesn't exist"
_LATE: Final = re.compile("context deadline exceeded|Client.Timeout")
_STUCK: Final = re.compile(r"failed to call t\[(\w+)\].*(?:EOF|context deadline exceeded)")
_POD: Final = re.compile(r"message: (.*), exitCode: (-?\d+)", re.DOTALL)
_KILLED: Final = (-9, -15, 137, 143)  # exit codes of processes ended by SIGKILL or SIGTERM
_STATE: Final = re.compile(r"state: (\w+)(?:, reason: (\w+))?")
_SLACK: Final = 15.0  # seconds by which the cluster may exceed its own limit
_SLOW: Final = 90.0  # seconds within which a pod ends
_OBJECT_SECONDS: Final = "45s"  # default limit of a transformer
_NODES: Final = 8  # number of nodes whose addresses a transformer gets; one that answers suffices
_HELD: Final = 1 << 16
"""Bytes held back: where an answer breaks off, AIStore appends its own error text to it, and closes the connection."""

T = TypeVar("T")


class NotRunning(Transient):
    """Raised for a transformer that was stopped, or whose pod has ended."""


class EnvironmentVariable(TypedDict):
    """An environment variable of a pod."""

    name: str
    value: str


class Pod(TypedDict, total=False):
    """The specification of a transformer's pods: image, command and environment."""

    image: str
    command: Sequence[str]
    env: Sequence[EnvironmentVariable]


class TransformerMessage(TypedDict, total=False):
    """The specification of a transformer, with AIStore's own keys; durations are in Go's format."""

    name: str
    communication: str
    init_timeout: str
    obj_timeout: str
    support_direct_put: bool
    runtime: Pod


class Transformers:
    """Client for the transformers of a cluster.

    Args:
        store: a bucket of the cluster.
    """

    def __init__(self, store: Store) -> None:
        self.store = cast("AisStore", store)

    @property
    def where(self) -> str:
        """The address of the cluster's proxy."""
        return self.store.proxy

    def ask(self, request: Callable[[], T]) -> T:
        """Send a request, with retries."""
        return retry(self.store, request, self.where)

    def stages(self) -> dict[str, str]:
        """Return the stage of each transformer by name: Initializing, Running, Aborted or Unknown."""
        return {each["id"]: str(each["stage"]) for each in self._get("") or ()}

    def message(self, name: str) -> TransformerMessage:
        """Return the specification of a transformer.

        Raises:
            RemoteError: when the transformer is not running.
        """
        return cast("TransformerMessage", self._get(f"/{name}").get("init_msg") or {})

    def nodes(self) -> list[str]:
        """Return the addresses of a few nodes, which know the others; empty if the token may not read the map."""
        known = parsed(self.store.control("GET", "daemon?what=smap").text)
        nodes = [*(known.get("pmap") or {}).values(), *(known.get("tmap") or {}).values()]
        return [node["public_net"]["direct_url"] for node in nodes[:_NODES]]

    def make(self, message: TransformerMessage) -> None:
        """Create a transformer, and wait until all of its pods are ready.

        Args:
            message: as from the function `message`.

        Raises:
            RemoteError: when the transformer cannot be created; with the last lines of the log of a pod that ended.
        """
        self._ask("PUT", "", message, wait=seconds_of(message["init_timeout"]) + _SLACK)

    def start(self, name: str) -> None:
        """Start a transformer that was stopped, or whose pod has ended."""
        self._ask("POST", f"/{name}/start")

    def stop(self, name: str) -> None:
        """Stop the pods of a transformer, which can be started again."""
        self._ask("POST", f"/{name}/stop")

    def delete(self, name: str) -> None:
        """Delete a transformer and its pods.

        A proxy refuses to delete a transformer that only targets know. A request to create one of that name, which the
        targets refuse, makes the name known to the proxy.

        Raises:
            RemoteError: when no transformer has that name.
        """
        try:
            self._delete(name)
        except RemoteError:
            if self.stages().get(name) != UNKNOWN:
                raise
            pod: Pod = {"image": "none", "command": ["false"]}
            message: TransformerMessage = {
                "name": name,
                "communication": "hpush://",
                "init_timeout": "1s",
                "runtime": pod,
            }
            with suppress(RemoteError, SourceError, Transient):
                self.make(message)
            self._delete(name)

    def _delete(self, name: str) -> None:
        request = partial(self._ask, "DELETE", f"/{name}")
        try:
            request()
        except KeyboardInterrupt:  # leaves a transformer without pods whose name is taken
            with suppress(RemoteError):
                call_with_retries(request, _END_SECONDS, shard=self.where)
            raise

    def delete_if_there(self, name: str) -> None:
        """Delete a transformer if it exists, with retries.

        Raises:
            SourceError: when the cluster does not answer.
        """
        with suppress(RemoteError):
            call_with_retries(lambda: self.delete(name), _END_SECONDS, shard=self.where)

    def message_for(
        self, settings: Settings, inputs: Iterable[ObjectInfo], *, seconds: float | None = None, **options: Any
    ) -> TransformerMessage:
        """Return the specification of a transformer with given settings.

        Args:
            settings: the settings of the transformer.
            inputs: objects that it will read.
            seconds: the time limit for one object; by default, it depends on the size of the largest input.
            options: as for the function `message`.
        """
        nodes = self.ask(self.nodes)  # before inputs are listed, as the cluster may not answer
        return message(settings, nodes=nodes, seconds=object_seconds(inputs) if seconds is None else seconds, **options)

    def make_anew(self, message: TransformerMessage) -> None:
        """Create a transformer, with retries, after deleting one of the same name that has ended.

        A transformer whose creation is interrupted by Ctrl-C is deleted, too.

        Args:
            message: as for `make`.

        Raises:
            RemoteError: when the transformer cannot be created, or another one of that name exists.
            SourceError: when the cluster does not answer.
        """
        name, asked = message["name"], False

        def make() -> None:
            nonlocal asked
            stage = self.stages().get(name)
            if asked and self.is_ready(name, stage):  # another process created it, or the answer was lost
                return
            if stage in ("Aborted", UNKNOWN):
                self.delete(name)
            elif stage and not asked:
                hint = f"use it as it is, or remove it with: tar2tf etl delete {name}"
                raise self._cannot(f"the transformer {name} already exists, and is {stage}", hint)
            asked = True
            self.make(message)

        try:
            self.ask(make)
        except KeyboardInterrupt:
            if asked:
                self.delete_if_there(name)
            raise

    def is_ready(self, name: str, stage: str | None) -> bool:
        """Whether a transformer is running, after waiting for one that is being created.

        Args:
            name: its name.
            stage: its stage; None if it does not exist.
        """
        deadline = time.monotonic() + INIT_SECONDS
        while stage == "Initializing" and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)
            stage = self.stages().get(name)
        return stage == "Running"

    def revive(self, message: TransformerMessage) -> None:
        """Restart a transformer with an ended pod; other processes may do so concurrently.

        Args:
            message: its specification.

        Raises:
            Transient: when it cannot be started now.
        """
        name = message["name"]
        try:
            stage = self.stages().get(name)
            if stage == "Aborted":
                self.start(name)
            elif stage is None and FOR_A_RUN in variables_of(message):
                self.make(message)
        except (RemoteError, SourceError) as error:
            raise Transient(f"the transformer {name} is not running: {error.message}", self.where) from None

    def logs(self, name: str) -> dict[str, str]:
        """Return the log of the pod on each target, by the target's name."""
        pods = self._get(f"/{name}/logs")
        return {pod["target_id"]: base64.b64decode(pod["logs"]).decode("utf-8", "replace") for pod in pods}

    def fetch(self, made_of: TransformerMessage, item: ObjectInfo, **query: str) -> Body:
        """Request the transformed object; as transformations are deterministic, a broken transfer may resume.

        Args:
            made_of: the specification of the transformer.
            item: the object.
            query: additional parameters of the request.

        Raises:
            Transient: also when the transformer is not running, after starting it again.
            Tar2tfError: an error sent by the transformer.
        """
        response = self._request("GET", made_of, item, query)
        length = response.headers.get("Content-Length")
        size = int(length) if length is not None else None
        return Body(withhold_end(response, size, DONE), response.close, 0, size, f"{made_of['name']} {item.version}")

    def store_as(
        self, made_of: TransformerMessage, item: ObjectInfo, target: AisStore, path: str, **query: str
    ) -> None:
        """Make the cluster store the transformed object.

        Args:
            made_of: the specification of the transformer; errors are those of `fetch`.
            item: the object.
            target: a bucket of the same cluster.
            path: the name of the new object.
            query: additional parameters of the request.
        """
        self._request("PUT", made_of, item, {"object_to": target.uname(path), **query}).drain()

    def _request(
        self, method: str, made_of: TransformerMessage, item: ObjectInfo, query: Mapping[str, str]
    ) -> Response:
        name, seconds = made_of["name"], seconds_of(made_of.get("obj_timeout") or _OBJECT_SECONDS)
        url = self.store.url(item.name, etl_name=name, **query)
        response: Response = self.store.client.send(method, url, wait=seconds + _SLACK)
        try:
            self._accept(response, name, self.store.locate(item.name))
        except NotRunning:
            self.revive(made_of)
            raise
        return response

    def _accept(self, response: Response, name: str, where: str) -> None:
        """Raise an error unless a response is a transformer's output."""
        if response.status < 400:
            return
        text = text_of(response)
        message = message_of(parsed(text)) or text
        if error := error_of(message, where):
            raise error
        hint = f"tar2tf etl logs {name} shows the logs of its pods"
        if response.status == 404 and re.search(_GONE.format(name=re.escape(name)), message):
            raise NotRunning(f"the transformer {name} is not running", self.where, hint=hint)
        if response.status == 400 and _LATE.search(message):
            longer = "make it with a longer time for each object: tar2tf etl init --object-timeout SECONDS"
            raise SourceError(f"the transformer {name} did not answer in time", shard=where, hint=longer)
        try:
            self.store.refuse(response, text, where)
        except Transient as fault:
            fault.hint = hint
            raise

    def _get(self, path: str) -> Any:
        """Query over the connection for data, as each conversion that reads from a cluster does."""
        response = self.store.client.send("GET", f"{self.store.endpoint}/v1/etl{path}", wait=_SLOW)
        text = response.read().decode("utf-8", "replace")
        self._check(response, text, path)
        try:
            return json.loads(text)
        except ValueError as error:
            raise SourceError(f"the endpoint is not an AIStore cluster: {error}", shard=self.where) from None

    def _ask(self, method: str, path: str, message: Mapping[str, object] | None = None, wait: float = _SLOW) -> None:
        """Send a control request that creates, starts, stops or deletes a transformer."""
        answer = self.store.control(method, f"etl{path}", message, wait=wait)
        self._check(answer, answer.text, path)

    def _check(self, answer: Response | Answer, text: str, path: str) -> None:
        """Raise the error of an unsuccessful response."""
        if answer.status < 400:
            return
        message = message_of(parsed(text))
        self._refuse(answer.status, message, path.split("/")[1] if path else "")
        try:
            self.store.refuse(answer, text, self.where)
        except Transient as fault:
            if stuck := _STUCK.search(message):  # AIStore 5.0 does so after starting a transformer during a rebalance
                fault.hint = f"restart the target {stuck[1]}: it no longer answers about transformers"
            raise

    def _refuse(self, status: int, message: str, name: str) -> None:
        """Raise a more specific error than the status, if a response about transformers allows it."""
        if status == 501:
            raise self._cannot("the cluster's AIStore was built without ETL (501)")
        if _NO_KUBERNETES.search(message):
            raise self._cannot("the cluster does not run on Kubernetes, which transformers need (400)")
        if status in (401, 403):
            raise self._cannot(f"the cluster does not let you use transformers ({status}): {message}", LOGIN)
        if status == 404 and name:
            raise self._no_such(name, self.stages())
        if status == 409:
            raise Transient(f"{message} (409)", self.where)  # another process has just started to create it
        if status == 400 and (state := _STATE.search(message)):
            raise self._cannot(*_pod_failure(message, state))

    def _no_such(self, name: str, stages: Mapping[str, str]) -> RemoteError:
        if name in stages:
            return self._cannot(f"the transformer {name!r} is {stages[name]}", "start it again with tar2tf etl init")
        hint = "list them with tar2tf etl list"
        return self._cannot(f"there is no transformer {name!r}{did_you_mean(name, stages)}", hint)

    def _cannot(self, message: str, hint: str = LOCALLY) -> RemoteError:
        return RemoteError(message, shard=self.where, hint=hint)


def _pod_failure(message: str, state: re.Match[str]) -> tuple[str, str]:
    """Return the reason why a pod stopped, and the next step."""
    ended = _POD.search(message)
    if ended and state[1] == "Terminated":
        last = "; ".join(line.strip() for line in ended[1].replace("\\n", "\n").splitlines()[-5:] if line.strip())
        if (code := int(ended[2])) in _KILLED or state[2] == "OOMKilled":
            lacks = (
                "it needs more memory" if state[2] == "OOMKilled" else "the node may lack memory, or is shutting down"
            )
            what = f"the transformer's pod was killed ({code}) when it started" + (f": {last}" if last else "")
            return what, f"{lacks}; then run the same command again"
        return f"the transformer's pod ended with {ended[2]}: {last}", "correct its image or spec, and make it again"
    why = f" ({state[2]})" if state[2] else ""
    return f"the transformer's pod was not ready in time; its state is {state[1]}{why}", "allow more with --timeout"


def withhold_end(response: Response, size: int | None, end: bytes) -> Callable[[int], bytes]:
    """Return a function that reads a response, but returns its end only if the response was complete.

    Args:
        response: the response, whose end looks regular even if the cluster lost the pod that was sending it.
        size: the size of the complete response, if it is known.
        end: the last bytes of a complete response.
    """
    held, received, ended = b"", 0, False

    def read(count: int) -> bytes:
        nonlocal held, received, ended
        while not ended and len(held) <= _HELD:
            data = response.read(count)
            received += len(data)
            held += data
            ended = not data
            if ended and size is not None and received < size:
                raise Transient(f"the transfer ended after {received:,} of {size:,} bytes", response.server)
            if ended and not held.endswith(end):
                raise Transient("the transformer's answer stopped", response.server)
        ready = len(held) if ended else len(held) - _HELD
        data, held = held[:ready], held[ready:]
        return data

    return read


INIT_SECONDS: Final = 120.0
"""Seconds in which the pods of a transformer have to be ready; AIStore looks 64 times in that time."""

UNKNOWN: Final = "Unknown"
"""The stage of a transformer that targets have, but not the proxy, as when that lost it in a restart."""

FOR_A_RUN: Final = "TAR2TF_ETL_FOR_A_RUN"
"""The variable of a transformer that was made for one run, and is deleted at its end; its value is the process."""

IMAGE: Final = "TAR2TF_IMAGE"
"""The variable that names the image of transformers; the default is what the Dockerfile in this folder is built as."""

_SERVE: Final = ("python", "-m", "tar2tf_cli", "etl", "serve", "--host", "0.0.0.0")
"""The command of a pod, which only its cluster can reach."""

_NAME: Final = re.compile("[a-z0-9][-a-z0-9]{4,30}[a-z0-9]")
_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_LEAST_SECONDS: Final = 120.0
_BYTES_A_SECOND: Final = 2e6  # bytes of an object per second on a busy target
_UNKNOWN_SIZE: Final = 1 << 30
LOOK_SECONDS: Final = 0.5
_END_SECONDS: Final = 10.0  # seconds in which a transformer is deleted
_ANY_BUCKET: Final = "ais://tar2tf"


def object_seconds(inputs: Iterable[ObjectInfo] = ()) -> float:
    """Return the time limit in seconds for transforming the largest of some objects."""
    sizes = [_UNKNOWN_SIZE if item.size is None else item.size for item in inputs]
    return _LEAST_SECONDS + max(sizes, default=_UNKNOWN_SIZE) // _BYTES_A_SECOND


def message(
    settings: Settings,
    *,
    name: str | None = None,
    image: str | None = None,
    comm: str = "hpush",
    init_seconds: float | None = None,
    seconds: float,
    nodes: Iterable[str] = (),
    for_a_run: bool = False,
) -> TransformerMessage:
    """Return the specification from which a cluster creates a transformer.

    Args:
        settings: the settings of the transformer.
        name: its name; by default derived from the settings and the version.
        image: the image of its pods; by default from the environment.
        comm: whether targets send requests to its pods (hpush), or redirect clients to them (hpull).
        init_seconds: the time limit for the pods to become ready; INIT_SECONDS when None.
        seconds: the time limit for one object.
        nodes: addresses of nodes of the cluster, as from `Transformers.nodes`.
        for_a_run: whether it belongs to this run alone, which deletes it at its end; it then has a name of its own.

    Raises:
        RemoteError: for a name that AIStore does not accept.
    """
    name = name or (f"{settings.name}-{os.urandom(4).hex()}" if for_a_run else settings.name)
    if not _NAME.fullmatch(name):
        raise RemoteError(
            f"{name!r} cannot be the name of a transformer",
            hint="use 6 to 32 lower-case letters, digits and hyphens, such as tar2tf-photos",
        )
    variables = {ENVIRONMENT: settings.text.replace("$", "\\u0024")}  # Kubernetes replaces $(NAME)
    if nodes:
        variables[NODES] = ",".join(nodes)
    if for_a_run:
        variables[FOR_A_RUN] = this_process()
    pod: Pod = {
        "image": image or os.environ.get(IMAGE) or f"tar2tf:{__version__}",
        "command": _SERVE,
        "env": [{"name": key, "value": value} for key, value in variables.items()],
    }
    return {
        "name": name,
        "communication": f"{comm}://",
        "init_timeout": f"{INIT_SECONDS if init_seconds is None else init_seconds:.10g}s",
        "obj_timeout": f"{seconds:.10g}s",
        "support_direct_put": True,
        "runtime": pod,
    }


def this_process() -> str:
    """Return a unique identifier of this process: host, boot, process namespace and process number.

    If the system does not reveal all of these, other processes never treat this process as ended.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')} {os.getpid()}"
    except OSError:
        return f"unknown {os.urandom(8).hex()} {os.getpid()}"


def is_abandoned(made_of: TransformerMessage) -> bool:
    """Whether a transformer was created for a run on this machine whose process was killed."""
    owner, _, number = variables_of(made_of).get(FOR_A_RUN, "").rpartition(" ")
    if not owner or owner != this_process().rpartition(" ")[0] or not number.isdecimal():
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except OSError:  # a file of another user
        return False
    return False


def settings_of(made_of: TransformerMessage) -> str | None:
    """Return a transformer's settings from its specification; None if it is not one of tar2tf's."""
    text = variables_of(made_of).get(ENVIRONMENT)
    return None if text is None else text.replace("\\u0024", "$")


def variables_of(made_of: TransformerMessage) -> dict[str, str]:
    """Return the environment of a transformer's pods."""
    given = made_of.get("runtime", Pod()).get("env") or ()
    return {each.get("name", ""): each.get("value", "") for each in given}


def seconds_of(duration: str) -> float:
    """Parse a Go duration, such as 1m30s, to seconds."""
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"([\d.]+)(ms|[hms])", duration))


def of_cluster(endpoint: str | None, retry_for: float | None = None) -> Transformers:
    """Return the transformers of the cluster at an endpoint.

    Args:
        endpoint: the address of the cluster's proxy; AIS_ENDPOINT when None.
        retry_for: seconds for which failed requests are repeated; None for TAR2TF_RETRY_FOR or 60.
    """
    return Transformers(open_store(_ANY_BUCKET, endpoint=endpoint, retry_for=retry_for))


def init_for_spec(
    spec: str, endpoint: str | None = None, *, retry_for: float | None = None, **options: Any
) -> dict[str, Any]:
    """Create a transformer for a spec file.

    Args:
        spec: the file; `-` is standard input.
        endpoint: the address of the cluster's proxy; AIS_ENDPOINT when None.
        retry_for: as for `of_cluster`.
        options: as for `Transformers.message_for`.

    Returns:
        Its name, image, and time limits in seconds.

    Raises:
        UsageError: when the spec has problems.
        RemoteError: when the cluster cannot create the transformer, or has a running one of that name.
        SourceError: when the cluster does not answer.
    """
    transformers, file = of_cluster(endpoint, retry_for), SpecFile(spec)
    inputs = _inputs(file.data.get("input") or {}, endpoint)
    made_of = transformers.message_for(Settings.of_file(file), inputs, **options)
    transformers.make_anew(made_of)
    return {
        "name": made_of["name"],
        "image": made_of["runtime"]["image"],
        "init_seconds": seconds_of(made_of["init_timeout"]),
        "object_seconds": seconds_of(made_of["obj_timeout"]),
    }


def _inputs(given: Mapping[str, Any], endpoint: str | None) -> Iterator[ObjectInfo]:
    """Yield the inputs that a spec names if they are in a cluster and can be listed, which happens lazily."""
    bucket, template = str(given.get("bucket", "")), given.get("template") or ()
    if bucket.startswith("ais"):
        with suppress(SourceError, UsageError):
            source = open_source(bucket, endpoint=endpoint)
            yield from source.list((template,) if isinstance(template, str) else template)
