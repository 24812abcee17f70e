"""Common parts of ``approve`` and ``reject``: options, completion, showing plans, asking, writing."""

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import click
from click.shell_completion import CompletionItem

from kubectl_numazones.plans import decisions, progress
from kubectl_numazones.plans.decisions import PendingPlan, PlanDecision
from kubectl_numazones.printing import screen
from kubectl_numazones.reading.event_loop import run_until_complete
from kubectl_numazones.reading.names import completions, joined
from kubectl_numazones.reading.source import Source, connect
from numazones.api.rebalance import ENDED, PlanPhase
from numazones.apimachinery.duration import human_duration
from numazones_client.resources import REBALANCE_RECOMMENDATIONS


def decision_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the names of recommendations, ``--dry-run`` and ``--yes``."""
    for option in (
        click.option(
            "-y", "--yes", is_flag=True, help="Do not ask for confirmation; required if there is no terminal."
        ),
        click.option(
            "--dry-run", is_flag=True, help="Only show the plans, and check whether the decision is possible."
        ),
        click.argument(
            "names", nargs=-1, required=True, metavar="RECOMMENDATION...", shell_complete=_complete
        ),
    ):
        command = option(command)
    return command


def decide_on(
    source: Source,
    names: tuple[str, ...],
    verb: str,
    *,
    dry_run: bool,
    yes: bool,
    wait: float | None = None,
) -> int:
    """Show the plans, ask, and write the decision; return the exit code.

    ``wait``: seconds to follow the plans until they have ended; None: not at all.

    Raises:
        NumazonesError: something speaks against one of them; nothing was written.
    """
    if not (dry_run or yes or sys.stdin.isatty()):
        raise click.UsageError(f"there is no terminal to ask for confirmation; use {verb} --yes")
    decision = PlanDecision(verb)
    plans = run_until_complete(_plans(source, names, decision))
    fresh = [plan for plan in plans if not decisions.is_decided(plan, decision)]
    for plan in plans:
        if plan in fresh:
            click.echo(f"{plan.name}: {plan.promise}")
            screen.warn_of(plan.spec.doubts)
            screen.print_table(decisions.MOVES, plan.spec.moves)
        else:
            click.echo(decisions.already(plan, decision))
    if dry_run:
        for plan in fresh:
            click.echo(f"{plan.name} would be {decision.field}")
        return 0
    if fresh and not yes and not click.confirm(decisions.question(fresh, decision)):
        click.echo(f"nothing was {decision.field}")
        return 1
    if fresh:
        run_until_complete(_write(source, fresh, decision))
    return 0 if wait is None else _follow(source, plans, wait)


def _follow(source: Source, plans: list[PendingPlan], seconds: float) -> int:
    """Print what becomes of plans and of the pods that wait for them; return 1 if not all succeed in time."""
    ended: dict[str, PendingPlan] = {plan.name: plan for plan in plans}

    async def follow() -> None:
        async with await connect(source) as client, asyncio.timeout(seconds):
            async for plan in progress.changes(client, plans):
                ended[plan.name] = plan
                click.echo(progress.line_of(plan))
            async for line in progress.arrivals(client, ended.values()):
                click.echo(line)

    try:
        run_until_complete(follow())
    except TimeoutError:
        click.echo(f"timed out after {human_duration(seconds)}. {_goes_on(ended.values())}", err=True)
        return 1
    except KeyboardInterrupt:
        click.echo(_goes_on(ended.values()), err=True)
        raise
    else:
        for plan in ended.values():
            if plan.phase not in ENDED:
                click.echo(f"{plan.name} was deleted", err=True)
    return 0 if all(plan.phase == PlanPhase.SUCCEEDED for plan in ended.values()) else 1


def _goes_on(plans: Iterable[PendingPlan]) -> str:
    """Say that the operator goes on with plans, and how to watch and stop them."""
    names = [plan.name for plan in plans if plan.phase not in ENDED]
    if not names:
        return "The plans have ended. kubectl numazones why shows what the pods are still waiting for."
    if any(plan.phase == PlanPhase.PROPOSED for plan in plans):
        return "The operator has not acted on the approval yet: kubectl numazones doctor shows what is wrong."
    return (
        f"The operator continues. Watch: kubectl get rebalancerecommendations {' '.join(names)} -w. "
        f"Stop: kubectl numazones reject {' '.join(names)}"
    )


async def _plans(source: Source, names: tuple[str, ...], decision: PlanDecision) -> list[PendingPlan]:
    """Return the plans that were named; nothing speaks against the decision."""
    async with await connect(source) as client:
        plans = [await decisions.find(client, name) for name in dict.fromkeys(joined(names, decisions.TYPES))]
        fresh = [plan for plan in plans if not decisions.is_decided(plan, decision)]
        await decisions.check(client, fresh, decision)
        return plans


async def _write(source: Source, plans: list[PendingPlan], decision: PlanDecision) -> None:
    async with await connect(source) as client:
        for plan in plans:
            await decisions.decide(client, plan, decision)
            click.echo(f"{plan.name} is {decision.field}: {decisions.what_follows(plan, decision)}")


def _complete(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the recommendations that have not ended; nothing where the cluster does not answer at once."""
    chosen = joined(tuple(ctx.params.get("names") or ()), decisions.TYPES)

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
