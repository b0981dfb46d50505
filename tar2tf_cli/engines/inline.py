"""One task at a time, in the current process."""

from __future__ import annotations

from tar2tf_cli.engines.base import Engine, Outcome, Task, TaskContext, attempt, keep_memory

__all__ = ["InlineEngine"]


class InlineEngine(Engine):
    """Runs each task inside `wait`."""

    def start(self, context: TaskContext) -> None:
        """Store the context."""
        keep_memory()
        context.on_bytes = self._count
        self._context = context

    def submit(self, task: Task) -> None:
        """Accept a task."""
        self.running[0] = task

    def wait(self, timeout: float) -> list[Outcome]:
        """Run the task to its end, whatever the timeout."""
        return [attempt(self.running.pop(0), self._context)]

    def close(self) -> None:
        """Do nothing: no task is running."""

    def _count(self, size: int) -> None:
        self.bytes_read += size
        if self.on_progress:
            self.on_progress()
