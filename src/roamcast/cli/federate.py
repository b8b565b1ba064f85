"""Commands between nodes: migrate a mailbox, invite and expel peers."""

from __future__ import annotations

from typing import Annotated

import typer

from roamcast.cli.options import Data, Json, OperatorTokenFile, Url
from roamcast.cli.output import print_result
from roamcast.cli.tokens import entity_client, operator_client, stored_tokens

__all__ = ["expel", "invite", "migrate"]


def migrate(
    subscriber: Annotated[str, typer.Argument(metavar="SUBSCRIBER", help="Id of the subscriber at its home node.")],
    to: Annotated[str, typer.Argument(metavar="URL", help="URL of the node to migrate to.")],
    as_json: Json = False,
    url: Url = None,
) -> None:
    """Migrate a subscriber's mailbox to another node. Its subscriptions stay at the home node.

    Use the subscriber's full name with other commands at the new node.

    Example: roamcast migrate ann http://south.example:8080
    """
    with entity_client(url, subscriber) as client:
        name = client.me()["name"]
        client.migrate(to)
        stored_tokens().put(to.rstrip("/"), name, lambda: client.mailbox_token or "")
    text = f"migrated {name} to {to}; read its mailbox with: roamcast pull --subscriber {name} --url {to}"
    print_result({"name": name, "url": to}, text, as_json=as_json)


def invite(
    domain: Annotated[str, typer.Argument(metavar="DOMAIN", help="Domain of the node to invite.")],
    operator_token_file: OperatorTokenFile = None,
    data: Data = None,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """Print an invitation for the node of another domain.

    The invitation is a secret. It is valid for one hour and for one node.

    Example: roamcast invite south --data ./roamcast-data
    """
    with operator_client(url, operator_token_file, data) as client:
        invitation = client.invite(domain)
    print_result({"domain": domain, "invitation": invitation}, invitation, as_json=as_json)


def expel(
    domain: Annotated[str, typer.Argument(metavar="DOMAIN", help="Domain of the peer to remove.")],
    operator_token_file: OperatorTokenFile = None,
    data: Data = None,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """Remove a peer from this node. Run it on each of your nodes. To undo it, invite the peer again.

    Example: roamcast expel south --data ./roamcast-data
    """
    with operator_client(url, operator_token_file, data) as client:
        client.expel(domain)
    print_result({"domain": domain}, f"removed peer {domain}", as_json=as_json)
