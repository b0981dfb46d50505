"""The interface of a backend: the machines on which the tasks of a conversion run, and the engine that runs them there.

A backend has a number of CPUs and makes an engine; an engine runs tasks and knows nothing about their work. If other
programs make the records, such as the transformers of a cluster, the backend also provides a `RecordMaker`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from tar2tf_cli.errors import Tar2tfError
from tar2tf_cli.structs import Generic, NamedTuple, Protocol, dataclass

if TYPE_CHECKING:
    from typing_extensions import Never

    from tar2tf_cli.api.objects import ObjectInfo
    from tar2tf_cli.api.store import Store

ReportT = TypeVar("ReportT")


class TaskContext(Protocol):
    """The data shared by all tasks of a run; forked or pickled, so each process has its own copy.

    Attributes:
        on_bytes: set by the engine; call it with the number of stored bytes after each read of an input.
    """

    on_bytes: Callable[[int], None] | None


class Task(Protocol):
    """A unit of work; it and its result can be pickled."""

    def run(self, context: Never, /) -> object:
        """Do the work and return its result.

        Callers rely on nothing else: whoever made the task knows the type of its result. `Never` allows each task to
        declare the context that it needs; the engine passes the one with which it was started.
        """


class Outcome(NamedTuple):
    """The outcome of a task: its result, or its error."""

    task: Task
    result: object = None
    error: Tar2tfError | None = None


class Engine(ABC):
    """Runs tasks, several at once and in any order; used by one thread.

    Args:
        workers: the number of tasks that it runs at once.

    Attributes:
        running: the tasks that have not ended, by the engine's own handle of each.
        bytes_read: stored bytes of input read by its tasks so far.
        on_progress: called from time to time by an engine whose `wait` does not return while a task runs.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.running: dict[Any, Task] = {}
        self.bytes_read = 0
        self.on_progress: Callable[[], None] | None = None

    @property
    def free(self) -> int:
        """Number of additional tasks that the engine accepts now."""
        return self.workers - len(self.running)

    @abstractmethod
    def start(self, context: TaskContext) -> None:
        """Start the workers; every task gets `context`, or a copy of it whose changes no other task sees.

        Raises:
            UsageError: when the context cannot be sent to the machines that run tasks.
        """

    @abstractmethod
    def submit(self, task: Task) -> None:
        """Accept a task; callers do so only while `free`.

        The engine decides where the task runs, and whether to repeat it after its machine was lost.
        """

    @abstractmethod
    def wait(self, timeout: float) -> list[Outcome]:
        """Return the outcomes since the last call; wait up to `timeout` seconds for the first.

        Callers rely on exactly one outcome for each task. The death of a worker is an error of its task.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop at once and abandon running tasks; no task runs after this returns."""


@dataclass(frozen=True)
class StoredShard(Generic[ReportT]):
    """The records of one input, stored as a shard.

    Attributes:
        report: the report on the input.
        size: bytes of the shard; 0 when the input has no samples, and there is no shard.
        crc: CRC-32C of the shard.
    """

    report: ReportT
    size: int
    crc: int


class RecordMaker(Protocol):
    """Makes records on the machines that store the inputs, instead of tasks that read inputs; it can be pickled."""

    def prefetch(self, items: Sequence[ObjectInfo]) -> AbstractContextManager[None]:
        """Return a context in which the records of these inputs are fetched concurrently, before they are read."""

    def read(self, item: ObjectInfo, on_bytes: Callable[[int], None] | None) -> object:
        """Return an object that is used like an `InputFlow` of the input, but only from front to back.

        Args:
            item: the input.
            on_bytes: called with the number of stored bytes after each read.

        Raises:
            Tar2tfError: when the records cannot be made or fetched; here or while they are read.
        """

    def makes_shards_in(self, store: Store) -> bool:
        """Whether the maker can store records in a bucket without sending them to this process."""

    def shard_tasks(
        self, shards: Mapping[str, ObjectInfo], store: Store, replaceable: Container[str], folder: str
    ) -> tuple[Sequence[Task], TaskContext]:
        """Return tasks that each have the records of one input stored as a shard, and their context.

        Call it only if `makes_shards_in` is true. The result of each task is a `StoredShard`. A task raises
        OutputExistsError if another program's object has the name of a shard.

        Args:
            shards: the input of each shard, by the shard's name.
            store: the bucket.
            replaceable: names of existing objects that may be replaced.
            folder: the folder for records of the stored shards, which a continued run reads.
        """


class Backend(ABC):
    """The machines on which the tasks of a conversion run.

    Attributes:
        shared: whether there may be several machines, so that all of them must be able to access inputs and outputs.
    """

    shared = False

    @property
    @abstractmethod
    def cpus(self) -> int:
        """The number of CPUs of all machines, which is how many tasks run at once by default."""

    def threads(self, wanted: int) -> int:
        """Return how many threads each task may have.

        Args:
            wanted: the number that is useful if each task has all CPUs of this machine.
        """
        return wanted

    def maker(self) -> AbstractContextManager[RecordMaker | None]:
        """Return a context manager that gives the `RecordMaker`, or None if tasks that read inputs make the records.

        Callers enter it once, when there is work to do, and exit it after the last record was made.

        Raises:
            Tar2tfError: on entering, when the maker cannot be prepared.
        """
        return nullcontext()

    @abstractmethod
    def engine(self, workers: int, *, carries: bool, inputs: Sequence[str]) -> Engine:
        """Return a new engine that runs tasks on these machines.

        Args:
            workers: the number of tasks that it runs at once.
            carries: whether files written by tasks may be sent to this process, if there is no shared folder.
            inputs: paths of some local inputs, which every machine must see.

        Raises:
            UsageError: when a machine does not see the inputs.
        """

    def close(self) -> None:  # noqa: B027 - most have nothing to do
        """Disconnect from the machines."""
