"""Common parts of ``approve`` and ``reject``: options, completion, showing plans, asking, writing."""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import click
from click.shell_completion import CompletionItem

from kubectl_numazones import plan_decisions
from kubectl_numazones.plan_decisions import PendingPlan, PlanDecision
from kubectl_numazones.printing import screen
from kubectl_numazones.reading.bad_dump import BadDump
from kubectl_numazones.reading.event_loop import run_until_complete
from kubectl_numazones.reading.names import completions, joined
from kubectl_numazones.reading.source import Source, connect
from numazones_client.resources import REBALANCE_RECOMMENDATIONS


def decision_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the names of recommendations, ``--dry-run`` and ``--yes``."""
    for option in (
        click.option(
            "-y", "--yes", is_flag=True, help="Do not ask first; needed where there is no terminal."
        ),
        click.option("--dry-run", is_flag=True, help="Only show the plans, and whether that can be decided."),
        click.argument(
            "names", nargs=-1, required=True, metavar="RECOMMENDATION...", shell_complete=_complete
        ),
    ):
        command = option(command)
    return command


def decide_on(source: Source, names: tuple[str, ...], verb: str, *, dry_run: bool, yes: bool) -> int:
    """Show the plans, ask, and write the decision; return the exit code.

    Raises:
        NumazonesError: something speaks against one of them; nothing was written.
    """
    if source.files:
        raise BadDump(f"{verb} changes a live cluster; it cannot do that to a dump (-f)")
    if not (dry_run or yes or sys.stdin.isatty()):
        raise click.UsageError(f"there is no terminal to ask at; with --yes {verb} does not ask")
    decision = PlanDecision(verb)
    plans = run_until_complete(_plans(source, names, decision))
    fresh = [plan for plan in plans if not plan_decisions.is_decided(plan, decision)]
    for plan in plans:
        if plan in fresh:
            click.echo(f"{plan.name}: {plan.promise}")
            screen.warn_of(plan.spec.doubts)
            screen.print_table(plan_decisions.MOVES, plan.spec.moves)
        else:
            click.echo(plan_decisions.already(plan, decision))
    if dry_run or not fresh:
        for plan in fresh:
            click.echo(f"{plan.name} would be {decision.field}")
        return 0
    if not yes and not click.confirm(plan_decisions.question(fresh, decision)):
        click.echo(f"nothing was {decision.field}")
        return 1
    run_until_complete(_write(source, fresh, decision))
    return 0


async def _plans(source: Source, names: tuple[str, ...], decision: PlanDecision) -> list[PendingPlan]:
    """Return the plans that were named; nothing speaks against the decision."""
    async with await connect(source) as client:
        plans = [
            await plan_decisions.find(client, name)
            for name in dict.fromkeys(joined(names, plan_decisions.TYPES))
        ]
        fresh = [plan for plan in plans if not plan_decisions.is_decided(plan, decision)]
        await plan_decisions.check(client, fresh, decision)
        return plans


async def _write(source: Source, plans: list[PendingPlan], decision: PlanDecision) -> None:
    async with await connect(source) as client:
        for plan in plans:
            await plan_decisions.decide(client, plan, decision)
            click.echo(f"{plan.name} is {decision.field}: {plan_decisions.what_follows(plan, decision)}")


def _complete(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the recommendations that have not ended; nothing where the cluster does not answer at once."""
    chosen = joined(tuple(ctx.params.get("names") or ()), plan_decisions.TYPES)

    async def ask(source: Source) -> list[CompletionItem]:
        return [
            CompletionItem(name, help=help_text)
            for name, help_text in await _proposed(source)
            if name.startswith(incomplete) and name not in chosen
        ]

    return completions(ctx, ask)


async def _proposed(source: Source) -> list[tuple[str, str]]:
    def read(bodies: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
        for body in bodies:
            plan = PendingPlan.of(body)
            if plan.active:
                yield plan.name, f"{plan.phase}: {plan.promise}"

    async with await connect(source) as client:
        return list(read(await client.list(REBALANCE_RECOMMENDATIONS)))
