"""`tar2tf etl`: transformers, which convert shards inside an AIStore cluster."""

from __future__ import annotations

import os
from typing import Any

import click

from tar2tf_cli.cli import Group
from tar2tf_cli.cli.options import Command, input_option, option, seconds, together, whole_number, words
from tar2tf_cli.cli.output import echo, message, print_json, print_table
from tar2tf_cli.errors import UsageError
from tar2tf_cli.ops import rules


@click.group("etl", cls=Group)
def command() -> None:
    """Convert inside an AIStore cluster, where the shards are.

    \b
    tar2tf etl init --spec spec.yaml
    tar2tf convert --spec spec.yaml
    tar2tf etl delete tar2tf-0123456789abcdef
    """


_cluster_options = together(
    input_option("--endpoint URL", help="Address of the cluster's proxy.", more="The default is AIS_ENDPOINT."),
    option(
        "--retry-for SECONDS",
        type=seconds,
        help="Time to repeat failed requests.  [default: 60]",
        more="Requests are repeated until there has been no progress for this many seconds.",
    ),
    option("--json", "as_json", is_flag=True, help="Print the result as JSON on standard output."),
)


_name = click.argument("name")


@command.command("init", cls=Command)
@input_option("--spec FILE", required=True, help="YAML spec; - for stdin.")
@option(
    "--name NAME",
    help="Name of the transformer.  [default: by spec]",
    more="The default follows from the spec and the version of tar2tf. Whatever its name, tar2tf convert finds it.",
)
@option(
    "--image IMAGE",
    help="Image of its pods.  [default: tar2tf:VERSION]",
    more="The default is the image that the Dockerfile in tar2tf_cli/elsewhere builds.",
)
@option(
    "--comm",
    **words("hpush", "hpull"),
    help="How requests reach it.",
    more="With hpush, targets pass on what its pods answer; with hpull, they refer clients to the pods.",
)
@option("--timeout SECONDS", "init_seconds", type=seconds, help="Time for its pods to be ready.  [default: 120]")
@option(
    "--object-timeout SECONDS",
    "seconds",
    type=seconds,
    help="Time for one shard.  [default: by size]",
    more="By the size of the largest shard that the spec's input names: 120 s and 1 s more for each 2 MB.",
)
@_cluster_options
def init(spec: str, endpoint: str | None, retry_for: float | None, as_json: bool, **how: Any) -> int:
    """Make a transformer, whose pods run next to the shards.

    \b
    tar2tf etl init --spec spec.yaml
    tar2tf convert --spec spec.yaml

    Conversions of this spec then run in the cluster until tar2tf etl delete. The name of the transformer is printed.
    One that was stopped, or whose pods ended, is replaced.
    """
    from tar2tf_cli.elsewhere.transformers import init_for_spec

    made = init_for_spec(spec, endpoint, retry_for=retry_for, **how)
    if as_json:
        print_json(made)
    else:
        echo(made["name"])
    return 0


@command.command("list", cls=Command)
@_cluster_options
def list_all(endpoint: str | None, retry_for: float | None, as_json: bool) -> int:
    """List the cluster's transformers.

    \b
    tar2tf etl list

    Transformers of other programs are listed, too. Aborted means that one was stopped, or that its pods ended.
    """
    from tar2tf_cli.elsewhere.transformers import ask

    stages = sorted(ask(lambda cluster: cluster.stages(), endpoint, retry_for).items())
    if as_json:
        print_json({"transformers": [{"name": name, "stage": stage} for name, stage in stages]})
    else:
        print_table(stages)
    return 0


@command.command("logs", cls=Command)
@_name
@_cluster_options
def logs(name: str, endpoint: str | None, retry_for: float | None, as_json: bool) -> int:
    """Show what the pods of a transformer have written.

    \b
    tar2tf etl logs tar2tf-0123456789abcdef
    """
    from tar2tf_cli.elsewhere.transformers import ask

    pods = sorted(ask(lambda cluster: cluster.logs(name), endpoint, retry_for).items())
    if as_json:
        print_json({"name": name, "pods": [{"target": target, "log": text} for target, text in pods]})
        return 0
    for target, text in pods:
        for line in text.splitlines():
            echo(f"{target}: {line}")
    return 0


@command.command("stop", cls=Command)
@_name
@_cluster_options
def stop(name: str, endpoint: str | None, retry_for: float | None, as_json: bool) -> int:
    """End the pods of a transformer.

    \b
    tar2tf etl stop tar2tf-0123456789abcdef

    Its name stays taken until tar2tf etl delete, or until tar2tf etl init makes it again.
    """
    from tar2tf_cli.elsewhere.transformers import ask

    ask(lambda cluster: cluster.stop(name), endpoint, retry_for)
    return _done(name, "Aborted", as_json)


@command.command("delete", cls=Command)
@_name
@_cluster_options
def delete(name: str, endpoint: str | None, retry_for: float | None, as_json: bool) -> int:
    """Delete a transformer, and end its pods.

    \b
    tar2tf etl delete tar2tf-0123456789abcdef
    """
    from tar2tf_cli.elsewhere.transformers import ask

    ask(lambda cluster: cluster.delete(name), endpoint, retry_for)
    return _done(name, None, as_json)


def _done(name: str, stage: str | None, as_json: bool) -> int:
    if as_json:
        print_json({"name": name, "stage": stage})
    return 0


@command.command("serve", cls=Command)
@input_option(
    "--spec FILE",
    help="YAML spec of the conversion; - for stdin.",
    more="Its input and output are not used. The default is the settings in TAR2TF_ETL_SETTINGS, which etl init sets.",
)
@option(
    "--host ADDRESS",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on.",
    more="Pods that tar2tf etl init makes listen on 0.0.0.0. Whoever reaches the port can read the target's objects.",
)
@option("--port N", type=whole_number, help="Port to listen on.  [default: PORT, else 8000]")
@option("-j", "--num-workers N", type=whole_number, help="Number of processes.  [default: CPUs]")
def serve(spec: str | None, host: str, port: int | None, num_workers: int | None) -> int:
    """Serve as a transformer in a pod of the cluster.

    \b
    tar2tf etl serve --spec spec.yaml

    The cluster asks for one tar at a time, and gets its records. It sets AIS_TARGET_URL.
    """
    from tar2tf_cli.elsewhere.settings import ENVIRONMENT, TARGET, Settings
    from tar2tf_cli.engines import cpu_count
    from tar2tf_cli.spec.yaml_file import SpecFile

    if not os.environ.get(TARGET):
        raise UsageError(
            f"{TARGET} is not set: this command runs in the pods of an AIStore cluster",
            hint="start a transformer with: tar2tf etl init --spec SPEC",
        )
    if not (spec or os.environ.get(ENVIRONMENT)):
        raise UsageError(f"there are no settings: give --spec, or set {ENVIRONMENT}")
    settings = Settings.of_file(SpecFile(spec)) if spec else Settings.load(os.environ[ENVIRONMENT])
    given, label = port or os.environ.get("PORT", 8000), "--port" if port else "PORT"
    port = rules.accepted(rules.whole_number(1, 65535), given, label)
    try:
        from tar2tf_cli.elsewhere.server import check_address, serve
    except ImportError as error:
        raise UsageError(
            f"the Python package {error.name!r} is not installed", hint="pip install 'tar2tf-cli[etl]'"
        ) from None
    check_address(host, port)
    workers = num_workers or cpu_count()
    message(f"{settings.name}: listening on {host}:{port}, {workers} process{'es' * (workers > 1)}")
    serve(settings, host, port, workers)
    return 0
