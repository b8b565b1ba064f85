"""`roamcast change`"""

from __future__ import annotations

from typing import Annotated

import typer

from roamcast.cli.attributes import AttributeOption, attribute_lines, attributes_of
from roamcast.cli.credentials import known
from roamcast.cli.options import DEFAULT_URL, Url

__all__ = ["change"]


def change(
    entity: Annotated[str, typer.Argument(metavar="ENTITY", help="Id of the source or subscriber.")],
    attribute: Annotated[list[str], AttributeOption],
    url: Url = DEFAULT_URL,
) -> None:
    """Give a source or a subscriber these attributes, and no others. Prints what it has then.

    Example: roamcast change mic-1 --attribute context=noise --attribute floor=3
    """
    attributes = attributes_of(attribute)
    with known(url, entity) as client:
        found = client.set_attributes(attributes)
    typer.echo("\n".join(attribute_lines(found["attributes"])))
