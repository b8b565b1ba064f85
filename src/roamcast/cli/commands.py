"""The class of all commands. Errors name parameters of the command, not fields of the API, and the help is plain."""

from __future__ import annotations

import re
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from roamcast.errors import AuthenticationError, InputError, RoamcastError
from roamcast.validation import problem_text

__all__ = ["Command", "Group", "UsageError", "usage_error"]

# typer contains a copy of click, or uses the real one, depending on its version. This is the base of either's errors.
UsageError: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")

# Fields of the API, and the parameters whose values they have, where the names differ.
_PARAMETERS: Final = {
    "attributes": "attribute", "from": "from_", "id": "entity", "max_x": "box", "max_y": "box", "min_x": "box",
    "min_y": "box", "name": "to", "readings": "reading", "terms": "term",
}  # fmt: skip
_ENTITIES: Final = ("gateway", "source", "subscriber", "entity")


class Group(TyperGroup):
    """A group of commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_flag_types(super().get_params(ctx))


class Command(TyperCommand):
    """A command. Wrong usage is an InputError."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_flag_types(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except UsageError as error:
            raise usage_error(error, ctx) from error

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except RoamcastError as error:
            _name_parameters(error, ctx)
            raise


def usage_error(error: Any, ctx: Any = None) -> InputError:
    """Wrong usage that typer found. `ctx` is the context of the command."""
    context = ctx or getattr(error, "ctx", None)
    hint = f"see: {context.command_path if context else 'roamcast'} --help"
    if hasattr(error.__cause__, "errors"):  # of pydantic
        return InputError(problem_text(error.__cause__.errors()[0]), where=_label(error.param), hint=hint)
    text = " ".join(error.format_message().split()).rstrip(".")
    return InputError(text[:1].lower() + text[1:], hint=hint)


def _name_parameters(error: RoamcastError, ctx: Any) -> None:
    """Replace fields of the API, such as `events[0].x`, by parameters, such as `--x`."""
    labels = {param.name: _label(param) for param in ctx.command.params}
    where = error.where or ""
    if where == "Authorization":
        caller = next((name for name in ("operator_token_file", *_ENTITIES) if ctx.params.get(name)), None)
        error.where = labels.get(caller)
        if isinstance(error, AuthenticationError) and caller in _ENTITIES:
            error.hint = "its token is not valid any more: register it again, or see `roamcast renew-token --help`"
    elif where == "body" or re.fullmatch(r"events\[\d+\]", where):
        error.where = None
    elif re.fullmatch(r"[a-z_]+(\[\d+\])?(\.\w+)*", where):
        fields = reversed(re.findall(r"[a-z]\w*", where))
        names = (name for field in fields for name in (field, _PARAMETERS.get(field)))
        error.where = next((labels[name] for name in names if name in labels), where)
    if re.match(r"see /docs|see --help|GET /v1", error.hint or ""):
        error.hint = f"see: {ctx.command_path} --help"


def _label(param: Any) -> str:
    """An option as it is written, or an argument as the help names it."""
    return str(param.opts[-1] if param.param_type_name == "option" else param.metavar or param.name.upper())


def _without_flag_types(params: list[Any]) -> list[Any]:
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params
