"""``completion``: the script that teaches a shell to complete ``kubectl-numazones``."""

import click
from click.shell_completion import get_completion_class

from kubectl_numazones.main import PROGRAM, commands

_VARIABLE = "_KUBECTL_NUMAZONES_COMPLETE"


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash:  source <(kubectl numazones completion bash)
    zsh:   source <(kubectl numazones completion zsh)
    fish:  kubectl numazones completion fish | source
    """
    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"there is no completion for {shell}")
    click.echo(found(commands, {}, PROGRAM, _VARIABLE).source())
