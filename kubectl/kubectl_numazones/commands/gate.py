"""``gate``: who waits at the scheduling gate and why; and how to open it without the operator."""

import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from kubectl_numazones.printing import screen
from kubectl_numazones.printing.output import Output, output_option
from kubectl_numazones.reading.cluster import live_options
from kubectl_numazones.reading.event_loop import run_until_complete
from kubectl_numazones.reading.names import POD_TYPES, complete_pods, joined
from kubectl_numazones.reading.selection import (
    all_namespaces_option,
    check_names,
    none_here,
    selector_option,
)
from kubectl_numazones.reading.source import Source, connect
from kubectl_numazones.stuck import gate_control
from numazones.apimachinery.label_selector import LabelSelector
from numazones.wording import pluralize
from numazones_client import Client
from numazones_program.columns import Column

_T = TypeVar("_T")
_EPILOG = """
\b
Examples:
  Which pods of all namespaces are waiting, for how long, and why?
    kubectl numazones gate -A

\b
  Release all pods of a namespace, to whatever node the scheduler chooses:
    kubectl numazones gate release -n my-namespace

\b
  Stop gating new pods, and release all waiting pods at once:
    kubectl numazones gate off
"""
_dry_run = click.option("--dry-run", is_flag=True, help="Only show what would be done.")


class _Options(click.Group):
    """A group whose commands come in the order in which people need them."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Name the commands."""
        return list(self.commands)


@click.group("gate", cls=_Options, invoke_without_command=True, epilog=_EPILOG)
@selector_option("pods")
@all_namespaces_option
@output_option("text", "name")
@live_options
@click.pass_context
def command(
    context: click.Context,
    source: Source,
    *,
    selector: LabelSelector | None,
    everywhere: bool,
    output: Output,
) -> int:
    """Show the pods of a namespace that are waiting at the gate numazones.io/admission, how long, and why.

    This also works if the operator is not running.
    """
    if context.invoked_subcommand is not None:
        return 0
    labels = "" if selector is None else str(selector)

    async def look(client: Client, source: Source) -> tuple[gate_control.GateDocument, str]:
        namespace = "" if everywhere else source.namespace or client.config.namespace
        found = await gate_control.status(client, namespace, labels)
        if found.waiting or everywhere:
            return found, ""
        return found, none_here(namespace, await gate_control.count_everywhere(client, labels))

    found, where = _on_cluster(source, look)
    if output.is_document:
        output.write(found)
        return 0
    if output.form == "name":
        for waiting in found.waiting:
            click.echo(f"pod/{waiting.name}")
        return 0
    screen.say(f"injection: {found.injection.message}")
    screen.say(f"operator: {found.operator}")
    if not found.waiting:
        screen.echo(f"No pods are waiting at the gate{where}")
        return 0
    now = datetime.now(UTC)
    columns: tuple[Column[gate_control.GatedPod], ...] = (
        Column("POD", lambda pod: f"{pod.namespace}/{pod.name}"),
        Column("AGE", lambda pod: screen.age(pod.since, now)),
        Column("WHY", lambda pod: pod.why),
    )
    screen.print_table(columns, found.waiting)
    return 0


@command.command("release")
@click.argument("pods", nargs=-1, metavar="[[NAMESPACE/]POD]...", shell_complete=complete_pods)
@selector_option("pods")
@click.option(
    "-A",
    "--all-namespaces",
    "--all",
    "everywhere",
    is_flag=True,
    help="Release the pods of all namespaces.",
)
@_dry_run
@live_options
def release(
    source: Source,
    *,
    pods: tuple[str, ...],
    selector: LabelSelector | None,
    everywhere: bool,
    dry_run: bool,
) -> int:
    """Remove the gate from PODs, from those of a namespace (-n), or from all (-A).

    With -l, only pods with these labels are released.

    The scheduler then places them on any node, and a kubelet may reject them. Their other scheduling gates
    stay. Pods that are created later are gated as before; `gate off` stops that. The exit code is 1 if a pod
    could not be released.
    """
    pods = joined(pods, POD_TYPES)
    check_names(pods, everywhere=everywhere, selector=selector)
    if (everywhere and source.namespace) or not (everywhere or pods or source.namespace):
        raise click.UsageError("name PODs, or use -n NAMESPACE for all pods of a namespace, or -A for all")
    labels = "" if selector is None else str(selector)

    async def act(client: Client, source: Source) -> int:
        if pods:
            found = await gate_control.named(client, pods, source.namespace or client.config.namespace)
        else:
            found = await gate_control.gated(client, "" if everywhere else source.namespace, labels)
        return await _release(client, found, dry_run=dry_run)

    return _on_cluster(source, act)


@command.command("off")
@_dry_run
@live_options
def off(source: Source, *, dry_run: bool) -> int:
    """Stop adding the gate to new pods, and remove it from all pods that are waiting at it.

    The command deletes the binding of the policy that adds the gate. If a tool such as Argo CD or Flux would
    apply the binding again, remove it there, too. `kubectl apply -k manifests/gate-injection` turns the
    policy on again. Pods whose own template contains the gate are still created with it.
    """
    if source.namespace:
        raise click.UsageError("gate off affects the whole cluster; use gate release -n for one namespace")

    async def act(client: Client, _source: Source) -> int:
        injection = await gate_control.injection(client)
        binding = f"MutatingAdmissionPolicyBinding {gate_control.INJECTION}"
        if not injection.on:
            screen.echo(f"injection: {injection.message}")
        elif dry_run:
            screen.echo(f"would delete {binding}, so that no more pods get the gate")
        else:
            await gate_control.switch_off(client)
            screen.echo(f"{binding} is deleted: no more pods get the gate")
        code = await _release(client, await gate_control.gated(client), dry_run=dry_run)
        return 1 if injection.on is None else code

    return _on_cluster(source, act)


def _on_cluster(source: Source, act: Callable[[Client, Source], Awaitable[_T]]) -> _T:
    """Do something with a client of the live cluster."""

    async def connected() -> _T:
        async with await connect(source) as client:
            return await act(client, source)

    return run_until_complete(connected())


async def _release(client: Client, pods: Sequence[dict[str, Any]], *, dry_run: bool) -> int:
    """Release pods and say what became of them; return the exit code."""
    if not pods:
        screen.echo("No pods are waiting at the gate")
        return 0
    if dry_run:
        screen.echo(f"would release {pluralize(len(pods), 'pod')}:")
        for pod in pods:
            screen.echo(f"  {pod['metadata']['namespace']}/{pod['metadata']['name']}")
        return 0
    with click.progressbar(length=len(pods), label="releasing pods", file=sys.stderr) as bar:
        found = await gate_control.release(client, pods, lambda through: bar.update(through - bar.pos))
    screen.echo(f"released {pluralize(found.done, 'pod')}")
    if found.gone:
        screen.echo(f"{pluralize(found.gone, 'pod')} had already gone")
    for name, why in sorted(found.failed.items()):
        screen.echo(f"error: {name} is still waiting: {why}", err=True)
    return int(bool(found.failed))
