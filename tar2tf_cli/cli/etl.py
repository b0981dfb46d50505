"""`tar2tf etl`: transformers, which convert shards inside an AIStore cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from tar2tf_cli.cli import CommandGroup
from tar2tf_cli.cli.options import (
    Command,
    choice_settings,
    input_option,
    json_option,
    option,
    option_group,
    retry_option,
    seconds,
    whole_number,
)
from tar2tf_cli.cli.output import echo, message, print_json, table, terminal_width
from tar2tf_cli.errors import UsageError

if TYPE_CHECKING:
    from tar2tf_cli.remote.transformers import Transformers


@click.group("etl", cls=CommandGroup)
def etl() -> None:
    """Convert inside an AIStore cluster, where the shards are.

    \b
    tar2tf etl init --spec spec.yaml
    tar2tf convert --spec spec.yaml
    tar2tf etl delete tar2tf-0123456789abcdef
    """


_cluster_options = option_group(
    input_option("--endpoint URL", help="Address of the cluster's proxy.", more="The default is AIS_ENDPOINT."),
    retry_option,
    json_option,
)
_name = click.argument("name")


def _ask(request: Callable[[Transformers], Any], options: Mapping[str, Any]) -> Any:
    """Send a request to the cluster, with retries, and return the response."""
    from tar2tf_cli.remote.transformers import of_cluster

    cluster = of_cluster(options["endpoint"], options["retry_for"])
    return cluster.ask(lambda: request(cluster))


def _print(document: object, lines: Iterable[str], options: Mapping[str, object]) -> int:
    """Print the result as JSON, or as lines of text."""
    if options["as_json"]:
        print_json(document)
    else:
        for line in lines:
            echo(line)
    return 0


@etl.command("init", cls=Command)
@input_option("--spec FILE", required=True, help="YAML spec; - for stdin.")
@option(
    "--name NAME",
    help="Name of the transformer.  [default: by spec]",
    more="By default, the name is derived from the spec and the version of tar2tf. tar2tf convert needs no name to "
    "find a transformer for its spec.",
)
@option(
    "--image IMAGE",
    help="Container image.  [default: tar2tf:VERSION]",
    more="The Dockerfile in tar2tf_cli/remote builds the default image.",
)
@option(
    "--comm",
    **choice_settings("hpush", "hpull"),
    help="How requests reach the pods.",
    more="hpush: the cluster's targets forward requests and answers. hpull: targets redirect clients to the pods.",
)
@option("--timeout SECONDS", "init_seconds", type=seconds, help="How long to wait for the pods.  [default: 120]")
@option(
    "--object-timeout SECONDS",
    "seconds",
    type=seconds,
    help="Time limit for a shard.  [default: by size]",
    more="The default is 120 s, plus 1 s for each 2 MB of the largest input shard.",
)
@_cluster_options
def init(as_json: bool, **options: Any) -> int:
    """Start a transformer in pods next to the shards.

    \b
    tar2tf etl init --spec spec.yaml
    tar2tf convert --spec spec.yaml

    Until you run tar2tf etl delete, conversions of this spec run in the cluster. The command prints the name of the
    transformer. It replaces one that was stopped or whose pods ended.
    """
    from tar2tf_cli.remote.transformers import init_for_spec

    made = init_for_spec(**options)
    return _print(made, [made["name"]], {"as_json": as_json})


@etl.command("list", cls=Command)
@_cluster_options
def list_all(**options: object) -> int:
    """List the cluster's transformers.

    \b
    tar2tf etl list

    The list includes transformers of other programs. Aborted means that the transformer was stopped or its pods ended.
    """
    stages = sorted(_ask(lambda cluster: cluster.stages(), options).items())
    document = {"transformers": [{"name": name, "stage": stage} for name, stage in stages]}
    return _print(document, table(stages, width=terminal_width()), options)


@etl.command("logs", cls=Command)
@_name
@_cluster_options
def logs(name: str, **options: object) -> int:
    """Show the logs of a transformer's pods.

    \b
    tar2tf etl logs tar2tf-0123456789abcdef
    """
    pods = sorted(_ask(lambda cluster: cluster.logs(name), options).items())
    document = {"name": name, "pods": [{"target": target, "log": text} for target, text in pods]}
    return _print(document, (f"{target}: {line}" for target, text in pods for line in text.splitlines()), options)


@etl.command("stop", cls=Command)
@_name
@_cluster_options
def stop(name: str, **options: object) -> int:
    """Stop the pods of a transformer.

    \b
    tar2tf etl stop tar2tf-0123456789abcdef

    The name stays in use until tar2tf etl delete. tar2tf etl init starts the transformer again.
    """
    _ask(lambda cluster: cluster.stop(name), options)
    return _print({"name": name, "stage": "Aborted"}, (), options)


@etl.command("delete", cls=Command)
@_name
@_cluster_options
def delete(name: str, **options: object) -> int:
    """Delete a transformer and stop its pods.

    \b
    tar2tf etl delete tar2tf-0123456789abcdef
    """
    _ask(lambda cluster: cluster.delete(name), options)
    return _print({"name": name, "stage": None}, (), options)


@etl.command("serve", cls=Command)
@input_option(
    "--spec FILE",
    help="YAML spec of the conversion; - for stdin.",
    more="Its input and output are ignored. The default is TAR2TF_ETL_SETTINGS, which etl init sets.",
)
@option(
    "--host ADDRESS",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on.",
    more="Pods started by tar2tf etl init listen on 0.0.0.0. Anyone who can reach the port can read the target's "
    "objects.",
)
@option("--port N", type=whole_number, help="Port to listen on.  [default: PORT, else 8000]")
@option("-j", "--num-workers N", type=whole_number, help="Number of processes.  [default: CPUs]")
def serve(spec: str | None, host: str, port: int | None, num_workers: int | None) -> int:
    """Run the server of a transformer in a pod of the cluster.

    \b
    tar2tf etl serve --spec spec.yaml

    The cluster requests one tar at a time, and receives its records. It sets AIS_TARGET_URL.
    """
    from tar2tf_cli.engines import cpu_count
    from tar2tf_cli.ops import rules
    from tar2tf_cli.remote.stream import ENVIRONMENT, TARGET, Settings
    from tar2tf_cli.spec.yaml_file import SpecFile

    if not os.environ.get(TARGET):
        raise UsageError(
            f"{TARGET} is not set: this command runs in the pods of an AIStore cluster",
            hint="start a transformer with: tar2tf etl init --spec SPEC",
        )
    if not (spec or os.environ.get(ENVIRONMENT)):
        raise UsageError(f"no conversion is given: use --spec, or set {ENVIRONMENT}")
    settings = Settings.of_file(SpecFile(spec)) if spec else Settings.load(os.environ[ENVIRONMENT], sources=None)
    given, label = port or os.environ.get("PORT", 8000), "--port" if port else "PORT"
    port = rules.accepted(rules.whole_number(1, 65535), given, label)
    try:
        from tar2tf_cli.remote.server import check_address, serve
    except ImportError as error:
        raise UsageError(
            f"the Python package {error.name!r} is not installed", hint="pip install 'tar2tf-cli[etl]'"
        ) from None
    check_address(host, port)
    workers = num_workers or cpu_count()
    message(f"{settings.name}: listening on {host}:{port}, {workers} process{'es' * (workers > 1)}")
    serve(settings, host, port, workers)
    return 0
