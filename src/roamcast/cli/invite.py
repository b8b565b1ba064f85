"""`roamcast invite`"""

from __future__ import annotations

from typing import Annotated

import typer

from roamcast.cli.credentials import operator
from roamcast.cli.options import DEFAULT_DATA, DEFAULT_URL, Data, OperatorTokenFile, Url

__all__ = ["invite"]


def invite(
    domain: Annotated[str, typer.Argument(metavar="DOMAIN", help="Domain of the node that may join.")],
    operator_token_file: OperatorTokenFile = None,
    data: Data = DEFAULT_DATA,
    url: Url = DEFAULT_URL,
) -> None:
    """Invite the node of another domain, and print the invitation. It is a secret, good for one hour and one node.

    Example: roamcast invite south --data ./roamcast-data
    """
    with operator(url, operator_token_file, data) as client:
        typer.echo(client.invite(domain))
