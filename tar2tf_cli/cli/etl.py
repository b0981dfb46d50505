"""`tar2tf etl`: transformers, which convert shards inside an AIStore cluster."""

from __future__ import annotations

import os

import click

from tar2tf_cli.cli import Group
from tar2tf_cli.cli.options import Command, option, whole

__all__ = ["command"]


@click.group("etl", cls=Group)
def command() -> None:
    """Convert inside an AIStore cluster, where the shards are.

    \b
    tar2tf etl serve --spec spec.yaml
    """


@command.command("serve", cls=Command)
@option(
    "--spec",
    group="Input",
    metavar="FILE",
    help="YAML spec of the conversion; - for stdin.",
    more="Its input and output are not used. The default is the settings in TAR2TF_ETL_SETTINGS, which etl init sets.",
)
@option("--host", metavar="ADDRESS", default="0.0.0.0", show_default=True, help="Address to listen on.")
@option("--port", type=whole, metavar="N", help="Port to listen on.  [default: PORT, else 8000]")
@option("-j", "--num-workers", type=whole, metavar="N", help="Number of processes.  [default: CPUs]")
def serve(spec: str | None, host: str, port: int | None, num_workers: int | None) -> int:
    """Serve as a transformer in a pod of the cluster.

    \b
    tar2tf etl serve --spec spec.yaml

    The cluster asks for one tar at a time, and gets its records. It sets AIS_TARGET_URL.
    """
    from tar2tf_cli.engines import cpu_count
    from tar2tf_cli.errors import UsageError
    from tar2tf_cli.remote.settings import ENVIRONMENT, Settings

    settings = Settings.read(spec) if spec else Settings.load(os.environ.get(ENVIRONMENT, ""))
    try:
        from tar2tf_cli.remote.server import serve
    except ImportError as error:
        raise UsageError(f"there is no {error.name}", hint="pip install 'tar2tf-cli[etl]'") from None
    serve(settings, host, port or int(os.environ.get("PORT", 8000)), num_workers or cpu_count())
    return 0
