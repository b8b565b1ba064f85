"""The `roamcast` command. One module per subcommand; each imports what it needs only when it runs."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

import typer

from roamcast import __version__
from roamcast.cli.bench import bench
from roamcast.cli.change import change
from roamcast.cli.compile import compile
from roamcast.cli.expel import expel
from roamcast.cli.explain_match import explain_match
from roamcast.cli.forget import forget
from roamcast.cli.invite import invite
from roamcast.cli.lacl import lacl
from roamcast.cli.leave import leave
from roamcast.cli.match import match
from roamcast.cli.migrate import migrate
from roamcast.cli.move import move
from roamcast.cli.node import node
from roamcast.cli.pipeline import pipeline
from roamcast.cli.publish import publish
from roamcast.cli.pull import pull
from roamcast.cli.register import register
from roamcast.cli.renew import renew
from roamcast.cli.reproduce import reproduce
from roamcast.cli.send import send
from roamcast.cli.simulate import simulate
from roamcast.cli.subscribe import subscribe
from roamcast.cli.subscriptions import subscriptions
from roamcast.cli.torture import torture
from roamcast.cli.trace import trace
from roamcast.cli.unsubscribe import unsubscribe
from roamcast.cli.up import up
from roamcast.cli.where import where
from roamcast.errors import RoamcastError

__all__ = ["app", "main"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Publish/subscribe that follows you. Begin with: roamcast up",
)

for _command in (
    up, node, pipeline, register, change, move, where, forget, renew, leave, publish, subscribe, subscriptions,
    unsubscribe, explain_match, pull, send, trace, migrate, invite, expel, match, simulate,
    compile,
):  # fmt: skip
    # A negative coordinate is no option.
    app.command(context_settings={"ignore_unknown_options": True} if _command is move else None)(_command)
app.add_typer(lacl, name="lacl")
app.add_typer(bench, name="bench")
app.add_typer(torture, name="torture")
app.add_typer(reproduce, name="reproduce")


@app.callback(invoke_without_command=True)
def _root(version: bool = typer.Option(False, "--version", help="Print the version and stop.")) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


# Typer has a copy of click inside, or uses the real one, depending on its version: this is the root of either's errors.
_Misuse: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")


def main() -> None:
    """What a user did wrong ends in one line and exit code 2; Ctrl-C in 130; a reader that went away in silence."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", stream=sys.stderr)
    for chatty in ("httpx", "py4j"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    try:
        code = app(standalone_mode=False)
    except RoamcastError as error:
        typer.echo(f"roamcast: {error}", err=True)
        code = 2
    except _Misuse as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "roamcast"
        if message := error.format_message():  # there is none where the help was asked for by giving nothing
            typer.echo(f"roamcast: {message} (see: {command} --help)", err=True)
        code = 2
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code)
