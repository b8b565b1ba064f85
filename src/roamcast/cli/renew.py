"""`roamcast renew`"""

from __future__ import annotations

from typing import Annotated

import typer

from roamcast.cli.credentials import Tokens, known, operator
from roamcast.cli.options import DEFAULT_DATA, DEFAULT_URL, Data, OperatorTokenFile, Url

__all__ = ["renew"]


def renew(
    entity: Annotated[str, typer.Argument(metavar="ENTITY", help="Id of the source or subscriber.")],
    operator_token_file: OperatorTokenFile = None,
    data: Data = DEFAULT_DATA,
    url: Url = DEFAULT_URL,
) -> None:
    """Give a source or a subscriber another token; the one before is worth nothing from now on.

    With its own token, if that is kept here; else with the operator's, and the new one is printed.

    Example: roamcast renew anna
    """
    tokens = Tokens()
    if tokens.get(url, entity) is not None:
        with known(url, entity) as client:
            tokens.put(url, entity, client.renew_token)
        typer.echo(f"{entity} has another token, which is kept")
    else:
        with operator(url, operator_token_file, data) as client:
            typer.echo(client.renew_token(entity))
