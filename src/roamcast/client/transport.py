"""What both clients tell httpx, and how they read it."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from pathlib import Path

import httpx

from roamcast.client.flow import Answer, Failure, Request
from roamcast.errors import InputError

__all__ = [
    "DEFAULT_URL",
    "STREAM_TIMEOUT",
    "answer_of",
    "built",
    "checked_url",
    "failure_of",
    "interrupt",
    "is_stream",
    "time_for",
    "trust",
]

DEFAULT_URL = "http://127.0.0.1:8080"

STREAM_TIMEOUT = httpx.Timeout(10.0, read=40.0)
"""A stream that says nothing for longer than two of the node's heartbeats is dead."""

_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


def trust(ca: Path | str | None) -> ssl.SSLContext | bool:
    """The certificates in the file `ca` instead of the system's. Raises InputError."""
    if ca is None:
        return True
    try:
        return ssl.create_default_context(cafile=str(ca))
    except OSError as error:
        raise InputError(
            f"no certificates can be read: {error}", where=str(ca), hint="give a file in PEM format"
        ) from error


def checked_url(url: str) -> str:
    """The address without a slash at its end. Raises InputError if it is none."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise InputError(f"not an address: {error}", where="url", hint=f"such as {DEFAULT_URL}") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise InputError(f"{url!r} is not the address of a node", where="url", hint=f"such as {DEFAULT_URL}")
    return url.rstrip("/")


def built(
    http: httpx.Client | httpx.AsyncClient,
    url: str,
    token: str | None,
    request: Request,
    timeout: httpx.Timeout,
) -> httpx.Request:
    headers = dict(request.headers)
    token = token if request.token is None else request.token
    if token:
        headers["authorization"] = f"Bearer {token}"
    if request.body is not None:
        headers["content-type"] = "application/json"
    return http.build_request(
        request.method,
        (request.at or url) + request.path,
        content=request.body,
        params=dict(request.parameters),
        headers=headers,
        timeout=timeout,
    )


def time_for(request: Request, timeout: float) -> httpx.Timeout:
    return httpx.Timeout(timeout, read=timeout + request.extra_time)


def is_stream(response: httpx.Response) -> bool:
    return response.status_code == 200 and response.headers.get("content-type", "").startswith("text/event-stream")


def interrupt(response: httpx.Response) -> None:
    """Have whoever waits for more of a response, in another thread, find that there is none.

    To close the connection would not wake it up.
    """
    line = response.extensions.get("network_stream")
    connection = line.get_extra_info("socket") if line is not None else None
    if connection is not None:
        with suppress(OSError):  # it has ended by itself
            connection.shutdown(socket.SHUT_RDWR)


def answer_of(response: httpx.Response) -> Answer:
    return Answer(response.status_code, response.content)


def failure_of(error: httpx.TransportError) -> Failure:
    return Failure(str(error) or type(error).__name__, sent=not isinstance(error, _NEVER_SENT))
