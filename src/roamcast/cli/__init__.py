"""The `roamcast` command. Commands import what they need when they run, so that `--help` is quick."""

from __future__ import annotations

import atexit
import gc
import logging
import os
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from roamcast import __version__
from roamcast.cli import (
    backtest,
    batch,
    config,
    entities,
    experiments,
    federate,
    inspect,
    lab,
    publish,
    run,
    talk,
    torture,
)
from roamcast.cli.commands import Command, Group, UsageError, usage_error
from roamcast.errors import ExitCode, RoamcastError

__all__ = ["app", "main"]

app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Publish/subscribe that follows you. Start with: roamcast up",
    epilog="Exit codes: 0 success, 1 failure, 2 usage, 3 not found, 4 refused, 5 conflict, 6 unavailable, 7 limit, "
    "8 storage, 9 missing extra, 130 interrupted.",
)

_COMMANDS: Final[dict[str, tuple[Any, ...]]] = {
    "Run": (run.up, run.node, run.pipeline, run.compile),
    "Talk": (
        entities.register, entities.unregister, entities.set_attributes, entities.move, entities.forget_position,
        entities.renew_token, publish.publish, talk.subscribe, talk.unsubscribe, talk.pull, talk.send,
    ),
    "Inspect": (
        inspect.status, inspect.where, inspect.sources, inspect.subscriptions, inspect.explain_match, inspect.trace,
    ),
    "Federate": (federate.migrate, federate.invite, federate.expel),
    "Batch": (batch.match, backtest.backtest),
    "Lab": (experiments.simulate,),
}  # fmt: skip
_GROUPS: Final = {
    "Run": {"config": config.config},
    "Inspect": {"lacl": inspect.lacl},
    "Lab": {"bench": lab.bench, "torture": torture.torture, "reproduce": experiments.reproduce},
}

for _panel, _functions in _COMMANDS.items():
    for _function in _functions:
        # The arguments of `move` can be negative numbers, which look like options.
        _settings = {"ignore_unknown_options": True} if _function is entities.move else None
        app.command(cls=Command, rich_help_panel=_panel, context_settings=_settings)(_function)
    for _name, _group in _GROUPS.get(_panel, {}).items():
        for _command in _group.registered_commands:
            _command.cls = Command
        app.add_typer(_group, name=_name, cls=Group, rich_help_panel=_panel)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Settings file.", show_default="roamcast.toml, if there is one")
    ] = None,
) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit
    if config is not None:
        # In the environment, so that processes started by `roamcast up` read it too.
        os.environ["ROAMCAST_CONFIG"] = str(config.absolute())


def main() -> None:
    """Run a command. An error is printed as one line on standard error; its class decides the exit code."""
    atexit.register(gc.freeze)  # Python searches all that is loaded for garbage at exit: half a second after numba
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", stream=sys.stderr)
    for name in ("httpx", "py4j"):
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        code = app(prog_name="roamcast", standalone_mode=False)
    except RoamcastError as error:
        typer.echo(f"roamcast: {error}", err=True)
        code = error.exit_code
    except UsageError as error:
        if error.format_message():  # empty if the help was printed because there were no arguments
            typer.echo(f"roamcast: {usage_error(error)}", err=True)
        code = ExitCode.USAGE
    except (KeyboardInterrupt, typer.Abort):
        code = ExitCode.INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = ExitCode.OK
    sys.exit(code)
