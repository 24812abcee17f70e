"""The command ``numazones-simulator``: a Kubernetes API server, recorded nodes, simulated clusters.

Everything runs on this machine, on loopback addresses, as an ordinary user, and is gone when it ends.
"""

import asyncio
import contextlib
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import click

from numazones.errors import NumazonesError
from numazones.wording import pluralize
from numazones_apiserver.__main__ import main as apiserver
from numazones_program.signals import ending_signals
from numazones_simulator import (
    animation,
    closed_loop,
    exporters,
    node_kinds,
    outcomes,
    placement_models,
    prevention,
    recorded_nodes,
    recordings,
    simulated_cluster,
    tables,
)
from numazones_simulator.addresses import free_address
from numazones_simulator.control_plane import ControlPlane
from numazones_simulator.kube_scheduler import configuration
from numazones_simulator.prevention import Prevention
from numazones_simulator.screen import Screen
from numazones_simulator.simulated_cluster import Publishing, SimulatedCluster
from numazones_simulator.turnover import Turnover
from numazones_simulator.workload import PodStream

_ZONES = "/apis/numazones.io/v1alpha1/numazones"
_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(context_settings=_SETTINGS)
@click.version_option(version("numazones"), prog_name="numazones-simulator")
def main() -> None:
    """Simulate a Kubernetes cluster, to try numazones without one.

    \b
      numazones-simulator demo             a small cluster, a workload, and what numazones sees
      numazones-simulator demo --recorded  recordings of real nodes, exported into an API server
      numazones-simulator cluster          a cluster of any size, for trials and tests
      numazones-simulator apiserver        only an empty API server

    It installs nothing, contacts no other machine, and removes everything at the end.
    """


main.add_command(apiserver, "apiserver")


_SERVE = click.option(
    "--serve/--no-serve",
    default=None,
    help="Keep everything running for kubectl until Ctrl-C.  [default: only on a terminal]",
)
_PROMETHEUS = click.option(
    "--prometheus",
    is_flag=True,
    help="Also run prometheus from the PATH; it scrapes the operator and the exporters.",
)
KUBELETS, ALL_MODELS = "kubelet", "all"
_PORT = click.option(
    "--port",
    default=0,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port of the API server; 0 picks a free one.",
)


class _DemoSettings(NamedTuple):
    port: int
    auto: bool
    recording: Path | None
    prometheus: bool
    serve: bool | None


@main.command(context_settings=_SETTINGS)
@click.option("--recorded", is_flag=True, help="Show recorded nodes instead of simulated ones.")
@click.option(
    "--recordings",
    "directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Directory with recorded nodes; implies --recorded.  "
    "[default: $NUMAZONES_SHARED/recordings, else the project's sample]",
)
@click.option("--auto", is_flag=True, help="Run the plan without asking.  [default: ask on a terminal]")
@click.option(
    "--record",
    "recording",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the demo as an animation (SVG) when it is over.",
)
@_PORT
@_PROMETHEUS
@_SERVE
def demo(directory: Path | None, *, recorded: bool, **chosen: Any) -> None:
    """Show what numazones does, on a small simulated cluster on this machine, in about two minutes.

    The cluster has four simulated nodes with different topology policies, two nodes with other placement
    models, a scheduler that knows nothing about NUMA (like the default one), and real exporters and operator.
    A workload fragments the nodes, a big pod gets stuck, kubectl numazones says why, a plan makes room, and
    the pod runs.

    With --recorded: each node is a recording of a real kubelet, read by a real exporter, and no pod moves.

    Afterwards everything keeps running for kubectl until Ctrl-C; without a terminal the command ends.
    """
    screen, settings = Screen(), _DemoSettings(**chosen)
    if recorded or directory is not None:
        if settings.prometheus or settings.recording or settings.auto:
            raise click.UsageError(
                "--auto, --record and --prometheus are for simulated nodes; omit --recorded and --recordings"
            )
        _run(lambda scratch: _show_recorded(screen, scratch, directory, settings))
    else:
        _run(lambda scratch: _show_closed_loop(screen, scratch, settings))


async def _show_recorded(
    screen: Screen, scratch: Path, directory: Path | None, settings: _DemoSettings
) -> None:
    recorded = recordings.find(directory)
    async with recorded_nodes.running(recorded, scratch, screen, port=settings.port) as plane:
        screen.title("kubectl get numazones")
        screen.say(tables.render(await tables.fetch(plane.server.url, _ZONES), columns=screen.columns))
        await _serve(plane, screen, serve=settings.serve)


async def _show_closed_loop(screen: Screen, scratch: Path, settings: _DemoSettings) -> None:
    specs = [kind(f"node-{number}", f"10.77.0.{number}") for number, kind in enumerate(closed_loop.NODES, 1)]
    page = free_address()
    async with simulated_cluster.running(
        specs,
        scratch,
        screen,
        port=settings.port,
        operator=(*closed_loop.OPERATOR_ARGUMENTS, f"--page-address={page}", "--page-usage=exporters"),
        prevent=(Prevention.EXTENDER,),
    ) as cluster:
        screen.say(f"Live page on http://{page}/")
        await _show_metrics(cluster, screen, scratch, prometheus=settings.prometheus)

        async def confirm(question: str) -> bool:
            asked = screen.is_terminal and sys.stdin.isatty() and not settings.auto
            return not asked or await _confirm(screen, question)

        await closed_loop.ClosedLoop(cluster, screen, confirm).tell()
        if settings.recording is not None:
            settings.recording.write_text(animation.animated(screen.pages[1:]), encoding="utf-8")
        await _serve(cluster.plane, screen, serve=settings.serve)


async def _confirm(screen: Screen, question: str) -> bool:
    """Ask on the terminal, while the cluster goes on; anything but no is yes."""
    screen.say()
    screen.say(f"{question} [Y/n]")
    answered = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin, answered.set)
    try:
        await answered.wait()
    finally:
        loop.remove_reader(sys.stdin)
    return not sys.stdin.readline().strip().lower().startswith("n")


async def _show_metrics(
    cluster: SimulatedCluster, screen: Screen, scratch: Path, *, prometheus: bool
) -> None:
    """Say where the metrics are, and start Prometheus where that was asked for."""
    await exporters.show_pods(cluster.plane, cluster.exporters)
    programs = {"operator": cluster.operator, **cluster.exporters}
    for name, address in programs.items():
        if address:
            screen.say(f"Metrics of {name} on {address}/metrics")
    if prometheus:
        screen.say(f"Prometheus on {await cluster.start_prometheus(scratch)}")


@main.command(context_settings=_SETTINGS)
@click.option("--nodes", default=5, show_default=True, type=click.IntRange(1, 2000), help="Number of nodes.")
@click.option(
    "--pods",
    default=0,
    show_default=True,
    type=click.IntRange(0),
    help="Number of random pods that come and go before the tables are shown.",
)
@click.option(
    "--models",
    type=click.Choice([KUBELETS, ALL_MODELS]),
    default=KUBELETS,
    show_default=True,
    help="all: about every other node has a placement model other than the kubelet's, and half of the "
    "pods are for such nodes.",
)
@click.option(
    "--kind",
    type=click.Choice(list(node_kinds.NAMED)),
    help="Use this kind for all nodes.  [default: five kinds in turn]",
)
@click.option("--crowd", default=150, show_default=True, help="Number of random pods that exist at a time.")
@click.option(
    "--seed", default=1, show_default=True, help="Seed of the random pods; the same seed gives the same pods."
)
@click.option(
    "--publishing",
    type=click.Choice([str(item) for item in Publishing]),
    help="exporters: a numazones-exporter process for each node; direct: the simulated kubelets publish "
    "their NUMAZones themselves.  [default: exporters for up to 6 nodes]",
)
@click.option("--operator/--no-operator", default=True, show_default=True, help="Run numazones-operator.")
@click.option(
    "--prevention",
    type=click.Choice([str(item) for item in Prevention]),
    help="extender: a second scheduler, numazones, calls the operator's extender, as in "
    "manifests/scheduler; the random pods name it. gate: the policy of manifests/gate-injection puts "
    "the gate on pods of the namespace default, and the operator releases them.  [default: pods are "
    "rejected]",
)
@click.option(
    "--scheduler-config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Run another scheduler with this KubeSchedulerConfiguration, or a ConfigMap that contains one. "
    "Start the extenders that it names yourself.",
)
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory for the kubeconfig, logs and the nodes' files; it is kept.  [default: a temporary "
    "directory]",
)
@_PORT
@_PROMETHEUS
@_SERVE
def cluster(directory: Path | None, **chosen: Any) -> None:
    """Run a simulated cluster of any size, let pods come and go, compare predictions with outcomes.

    Nodes are of five kinds in turn: machines with two to four NUMA nodes, all topology policies, devices,
    hugepages. Each has a simulated kubelet that admits pods as the real one does. The scheduler that binds
    pods knows nothing about NUMA. ReplicaSets work too. --models all adds nodes of each installed placement
    model, with the taint simulator.numazones.io/model.

    \b
      numazones-simulator cluster --nodes 3                 an idle cluster
      numazones-simulator cluster --nodes 1 --kind best-effort
      numazones-simulator cluster --nodes 20 --pods 2000    each prediction compared with its outcome
      numazones-simulator cluster --nodes 20 --pods 2000 --prevention extender    without rejections
    """
    if chosen["prevention"] == Prevention.GATE and not chosen["operator"]:
        raise click.UsageError(
            "--prevention gate needs the operator, which removes the gate; omit --no-operator"
        )
    if chosen["kind"] is not None and chosen["models"] == ALL_MODELS:
        raise click.UsageError("--kind gives all nodes one kind, but --models all adds other kinds: omit one")
    settings = _ClusterSettings(**chosen)
    _run(lambda scratch: _show_cluster(Screen(), scratch, settings), directory)


class _ClusterSettings(NamedTuple):
    nodes: int
    pods: int
    models: str
    kind: str | None
    crowd: int
    seed: int
    publishing: str | None
    port: int
    operator: bool
    prevention: str | None
    scheduler_config: Path | None
    prometheus: bool
    serve: bool | None


async def _show_cluster(screen: Screen, scratch: Path, settings: _ClusterSettings) -> None:
    everything = settings.models == ALL_MODELS
    kinds = (*node_kinds.KINDS, *placement_models.node_kinds()) if everything else node_kinds.KINDS
    if settings.kind is not None:
        kinds = (node_kinds.NAMED[settings.kind],)
    arrivals = PodStream(settings.seed).pods()
    if everything:
        arrivals = placement_models.pods_for_all(settings.seed, arrivals)
    if settings.prevention == Prevention.EXTENDER:
        arrivals = prevention.for_scheduler(arrivals)
    further = None if settings.scheduler_config is None else configuration.read(settings.scheduler_config)
    page = free_address()
    async with simulated_cluster.running(
        node_kinds.mixed(settings.nodes, kinds=kinds),
        scratch,
        screen,
        port=settings.port,
        publishing=Publishing(settings.publishing) if settings.publishing else None,
        operator=(f"--page-address={page}", "--page-usage=exporters") if settings.operator else None,
        prevent=() if settings.prevention is None else (Prevention(settings.prevention),),
        second_scheduler=further,
    ) as running:
        if settings.operator:
            screen.say(f"Live page on http://{page}/")
        await _show_metrics(running, screen, scratch, prometheus=settings.prometheus)
        if settings.pods:
            turnover = Turnover(running.plane.client, arrivals, crowd=settings.crowd)
            fates = await turnover.run(settings.pods, progress=_progress(screen, settings.pods))
            running.programs.check()
            screen.title(f"{pluralize(fates.total, 'pod')} in all, {fates.rejected} rejected by kubelets")
            screen.say(str(fates))
        if settings.pods and settings.operator:
            compared = await outcomes.fetch(running.operator)
            screen.title("Predicted when the pod was bound, and what its kubelet did")
            screen.say(outcomes.render(compared))
            screen.say(f"{outcomes.verdict(compared)}.")
        screen.title("kubectl get numazones")
        zones = await tables.fetch(running.plane.server.url, _ZONES)
        screen.say(tables.render(zones, columns=screen.columns))
        await _serve(running.plane, screen, serve=settings.serve)


def _progress(screen: Screen, goal: int) -> Callable[[int], None]:
    """Return what shows progress, in steps that people can read."""
    step = max(1, goal // 20)
    shown = 0

    def progress(count: int) -> None:
        nonlocal shown
        if count // step > shown:
            shown = count // step
            screen.progress(f"{count} of {goal} pods")

    return progress


async def _serve(plane: ControlPlane, screen: Screen, *, serve: bool | None) -> None:
    """Print how to reach the API server, and stay until the command is ended; None: on a terminal only."""
    if not (screen.is_terminal if serve is None else serve):
        return
    screen.title("Try it from another terminal")
    screen.say(f"  export KUBECONFIG={plane.kubeconfig}")
    if (Path(sys.executable).with_name("kubectl-numazones")).exists():
        screen.say(f"  export PATH={Path(sys.executable).parent}:$PATH")
        screen.say("  kubectl numazones live")
    screen.say("  kubectl get numazones -o wide")
    screen.say("  kubectl explain numazone.status")
    if shutil.which("kubectl") is None:
        screen.say(
            "There is no kubectl on your PATH; `tools/test-tools .cache` puts one into .cache/tools/bin."
        )
    screen.say()
    screen.say("Press Ctrl-C to stop the programs and remove everything.")
    await asyncio.Event().wait()


def _run(work: Callable[[Path], Awaitable[None]], directory: Path | None = None) -> None:
    """Run work with a directory; signals end it in order, errors end it with their message."""

    async def until_signalled(scratch: Path) -> None:
        working = asyncio.ensure_future(work(scratch))
        loop = asyncio.get_running_loop()

        def end() -> None:
            if not working.cancelling():
                click.echo("\nStopping the programs and removing everything.", err=True)
            working.cancel()

        for number in ending_signals():
            loop.add_signal_handler(number, end)
        with contextlib.suppress(asyncio.CancelledError):
            await working

    with _place(directory) as scratch:
        try:
            asyncio.run(until_signalled(scratch))
        except BrokenPipeError:  # nobody reads on; click ends the command quietly
            raise
        except (NumazonesError, OSError) as error:
            raise click.ClickException(str(error)) from error


@contextlib.contextmanager
def _place(directory: Path | None) -> Iterator[Path]:
    """The given directory, made where missing, or a temporary one."""
    if directory is None:
        with tempfile.TemporaryDirectory(prefix="numazones-") as scratch:
            yield Path(scratch)
    else:
        directory.mkdir(parents=True, exist_ok=True)
        yield directory.resolve()


if __name__ == "__main__":
    main()
