"""The command ``kubectl-numazones``, which kubectl runs as ``kubectl numazones``.

Commands are named here and imported when they are asked for, so that ``--help`` and completion answer at
once. Errors that name their cure end a command with one line on stderr and exit code 2, as 1 is an answer (it
does not fit); a usage error adds a line that names the help. A pipe that is closed and Ctrl-C end it quietly,
with the exit code that shells expect.
"""

import importlib
import io
import os
import re
import signal
import sys
from typing import Any, NamedTuple

_INTERRUPTIBLE = signal.getsignal(signal.SIGINT) is signal.default_int_handler
if _INTERRUPTIBLE:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C while modules are imported is no traceback

import click  # noqa: E402
from click.shell_completion import CompletionItem  # noqa: E402

from kubectl_numazones.reading.garbage_collection import without_collection  # noqa: E402
from numazones.errors import NumazonesError  # noqa: E402
from numazones.wording import did_you_mean, visible  # noqa: E402

if _INTERRUPTIBLE:
    signal.signal(signal.SIGINT, signal.default_int_handler)

PROGRAM = "kubectl-numazones"
_ERROR = 2
_INTERRUPTED = 128 + signal.SIGINT
_STDOUT = 1
_NO_INTEGER = re.compile("is not a valid integer( range)?")
"""Click's words for a number that is not whole, with the name of its type."""


class _Command(NamedTuple):
    """Module of a command, and its text in the list of commands."""

    module: str
    help: str


_COMMANDS = {
    "why": _Command("why", "Explain why a pod is stuck or was rejected, and what would help."),
    "fit": _Command("fit", "Check whether pods of a shape would be admitted, how many, and where."),
    "who": _Command("who", "List who holds what on each NUMA node of a node."),
    "aligned": _Command("aligned", "List running pods that are spread over NUMA nodes, worst first."),
    "top": _Command("top", "Show what is in use on each NUMA node."),
    "idle": _Command("idle", "List containers whose exclusive CPUs are idle, and what would fit instead."),
    "live": _Command("live", "Watch NUMA nodes, stuck pods and plans in a full-screen view."),
    "tree": _Command("tree", "Draw a node: sockets, NUMA nodes, caches, cores and who holds them."),
    "plan": _Command("plan", "Plan the fewest evictions that let waiting pods fit."),
    "approve": _Command("approve", "Approve one of the operator's plans; the operator then runs it."),
    "reject": _Command("reject", "Reject one of the operator's plans, or stop it if it is running."),
    "report": _Command("report", "Write a report of the cluster: one HTML page that needs no network."),
    "whatif": _Command("whatif", "Compare kubelet settings: the same pods under old and new settings."),
    "sweep": _Command("sweep", "Compare a grid of kubelet settings; write a table and a plot."),
    "size": _Command("size", "Compute how many machines a list of pods needs, and with which settings."),
    "replay": _Command(
        "replay", "Compare what the kubelets did in a recording with what the model predicts."
    ),
    "record": _Command("record", "Record a live node for a bug report; replay reads it."),
    "doctor": _Command("doctor", "Check the installation, the kubelets' settings and the pods' requests."),
    "gate": _Command("gate", "Show the pods at the scheduling gate, and release them without the operator."),
    "clean": _Command("clean", "List pods that kubelets rejected, and delete those that have been replaced."),
    "completion": _Command("completion", "Print the completion script for bash, zsh or fish."),
    "version": _Command("version", "Print the version."),
}


class _Commands(click.Group):
    """The commands, each imported when it is asked for."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Name the commands in the order in which people need them."""
        return list(_COMMANDS)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        """Import a command."""
        if name not in _COMMANDS:
            return None
        with without_collection():
            module = importlib.import_module(f"kubectl_numazones.commands.{_COMMANDS[name].module}")
        command: click.Command = module.command
        return command

    def shell_complete(self, _ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the name of a command, without importing one."""
        return [
            CompletionItem(name, help=command.help)
            for name, command in _COMMANDS.items()
            if name.startswith(incomplete)
        ]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is named; of one that is not there, say which is meant."""
        if args[0] not in _COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"unknown command {args[0]!r}{did_you_mean(args[0], _COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.help) for name, command in _COMMANDS.items()])


_EPILOG = """
\b
Examples:
  Why is this pod stuck?
    kubectl numazones why my-pod

\b
  Would 8 such pods fit, and where?
    kubectl numazones fit cpu=16,memory=32Gi --replicas 8

\b
  The same offline, from a dump:
    kubectl get nodes,numazones,pods,replicasets -A -o json > dump.json
    kubectl numazones why my-pod -f dump.json
  If programs other than the kubelet place pods, the output says what else to dump.
"""


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=_EPILOG,
)
def commands() -> None:
    """See, predict and fix NUMA placement, on the live cluster or offline from a dump (-f)."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and end the process with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # None if the caller has closed it
            stream.reconfigure(errors="replace")  # what the terminal cannot show is a question mark
    try:
        result: Any = commands.main(arguments, prog_name=_name(), standalone_mode=False)
        if sys.stdout is not None:  # closed by the caller
            sys.stdout.flush()
    except click.ClickException as error:
        _show(error)
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(_INTERRUPTED)
    except NumazonesError as error:
        click.echo(f"error: {visible(str(error))}", err=True)
        sys.exit(_ERROR)
    except OSError as error:
        # The reader (head, less) has gone, or the disk is full; what is buffered must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), _STDOUT)
        if isinstance(error, BrokenPipeError):
            sys.exit(1)
        click.echo(f"error: {error.strerror or error}", err=True)
        sys.exit(_ERROR)
    sys.exit(result if isinstance(result, int) else 0)


def _show(error: click.ClickException) -> None:
    """Print an error of the command line, and where its help is; without a command, print the help."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return
    message = _NO_INTEGER.sub("is not a whole number", error.format_message())
    click.echo(f"error: {visible(message)}", err=True)
    if isinstance(error, click.UsageError) and error.ctx is not None:
        click.echo(f"see: {error.ctx.command_path} --help", err=True)


def _name() -> str:
    """The words that the user typed: kubectl runs plugins by their path."""
    return "kubectl numazones" if os.path.basename(sys.argv[0]) == PROGRAM else PROGRAM  # noqa: PTH119
