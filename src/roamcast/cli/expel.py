"""`roamcast expel`"""

from __future__ import annotations

from typing import Annotated

import typer

from roamcast.cli.credentials import operator
from roamcast.cli.options import DEFAULT_DATA, DEFAULT_URL, Data, OperatorTokenFile, Url

__all__ = ["expel"]


def expel(
    domain: Annotated[str, typer.Argument(metavar="DOMAIN", help="Domain of the node that shall be heard no more.")],
    operator_token_file: OperatorTokenFile = None,
    data: Data = DEFAULT_DATA,
    url: Url = DEFAULT_URL,
) -> None:
    """Have nothing more to do with the node of another domain. Tell each of your nodes; another invitation undoes it.

    Example: roamcast expel south --data ./roamcast-data
    """
    with operator(url, operator_token_file, data) as client:
        client.expel(domain)
