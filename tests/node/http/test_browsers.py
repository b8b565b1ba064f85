"""Browsers as clients: tickets for streams, and pages of other origins, also in a real browser."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from nodes import RunningNode, bearer, in_process_node, leave, running_node, until
from pages import ROOT, blocks
from playwright.sync_api import Page, expect, sync_playwright

from roamcast.client import Client
from roamcast.client.streams import SseEvent, SseReader

PAGE = "https://app.example"
CHROMIUM = shutil.which("chromium")


def ticket_of(node: RunningNode, client: Client, what: str = "mailbox") -> str:
    response = node.http.post(f"/v1/{what}/tickets", headers=bearer(client))
    assert response.status_code == 201
    return str(response.json()["ticket"])


def first_event(node: RunningNode, path: str) -> SseEvent:
    reader = SseReader()
    with node.http.stream("GET", path) as response:
        assert response.status_code == 200
        return next(event for chunk in response.iter_bytes() for event in reader.feed(chunk))


def status(node: RunningNode, path: str) -> int:
    with node.http.stream("GET", path) as response:
        return response.status_code


def test_a_ticket_opens_the_streams_of_its_owner(node: RunningNode) -> None:
    """Several times, and from an offset."""
    anna = node.subscriber()
    leave(node.data, 1, ("anna", 1, "a"), ("anna", 2, "b"))
    ticket = ticket_of(node, anna)
    assert first_event(node, f"/v1/mailbox/stream?ticket={ticket}").id == "1"
    assert first_event(node, f"/v1/mailbox/stream?ticket={ticket}&after=1").id == "2"
    mic = node.source()
    demand = ticket_of(node, mic, "me/demand")
    assert first_event(node, f"/v1/me/demand/stream?ticket={demand}").data == '{"demanded":false}'


def test_a_ticket_opens_nothing_else(node: RunningNode) -> None:
    """It is no token, and a ticket for one stream does not open the other."""
    anna, mic = node.subscriber(), node.source()
    ticket, demand = ticket_of(node, anna), ticket_of(node, mic, "me/demand")
    assert status(node, f"/v1/mailbox/stream?ticket={demand}") == 401
    assert status(node, f"/v1/me/demand/stream?ticket={ticket}") == 401
    assert status(node, f"/v1/mailbox?ticket={ticket}") == 422
    headers = {"authorization": f"Bearer {ticket}"}
    assert node.http.get("/v1/mailbox", headers=headers).status_code == 401
    assert node.http.post("/v1/mailbox/tickets", headers=headers).status_code == 401


def test_tickets_need_a_token_of_the_right_kind(node: RunningNode) -> None:
    assert node.http.post("/v1/mailbox/tickets").status_code == 401
    assert node.http.post("/v1/mailbox/tickets", headers=bearer(node.source())).status_code == 403
    assert node.http.post("/v1/me/demand/tickets", headers=bearer(node.subscriber())).status_code == 403


def test_a_renewed_token_ends_its_tickets(node: RunningNode) -> None:
    anna, mic = node.subscriber(), node.source()
    ticket, demand = ticket_of(node, anna), ticket_of(node, mic, "me/demand")
    anna.renew_token()
    mic.renew_token()
    assert status(node, f"/v1/mailbox/stream?ticket={ticket}") == 401
    assert status(node, f"/v1/me/demand/stream?ticket={demand}") == 401


def test_tickets_do_not_appear_in_logs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whatever the level: neither valid nor invalid ones, nor with an error."""
    caplog.set_level(logging.DEBUG)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # the test's own client
    logging.getLogger("httpcore").setLevel(logging.WARNING)
    with running_node(tmp_path) as node:
        anna = node.subscriber()
        leave(node.data, 1, ("anna", 1, "a"))
        ticket = ticket_of(node, anna)
        first_event(node, f"/v1/mailbox/stream?ticket={ticket}")
        assert status(node, f"/v1/mailbox/stream?ticket={ticket}x") == 401
        node.service.office.mailboxes.pull = None  # type: ignore[method-assign,assignment]
        assert status(node, f"/v1/mailbox/stream?ticket={ticket}") == 500
    printed = "".join(capfd.readouterr()) + caplog.text
    assert "TypeError" in printed
    assert ticket not in printed


@pytest.fixture(scope="module")
def open_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A node that pages of one origin may call."""
    with in_process_node(tmp_path_factory.mktemp("data"), cors_origins=[PAGE]) as node:
        yield node


def preflight(node: RunningNode, origin: str, path: str = "/v1/subscriptions", method: str = "POST") -> httpx.Response:
    headers = {
        "origin": origin,
        "access-control-request-method": method,
        "access-control-request-headers": "authorization, content-type, last-event-id",
    }
    return node.http.options(path, headers=headers)


@pytest.mark.parametrize(
    ("path", "method"), [("/v1/subscriptions", "POST"), ("/v1/me/attributes", "PUT"), ("/v1/me", "DELETE")]
)
def test_preflights_of_allowed_origins_are_answered(open_node: RunningNode, path: str, method: str) -> None:
    response = preflight(open_node, PAGE, path, method)
    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == PAGE
    assert method in response.headers["access-control-allow-methods"]
    allowed = response.headers["access-control-allow-headers"].lower()
    assert all(name in allowed for name in ("authorization", "content-type", "last-event-id"))
    assert "access-control-allow-credentials" not in response.headers


def test_other_origins_are_refused(open_node: RunningNode) -> None:
    """Their requests without a preflight are answered, but a browser shows the page nothing."""
    assert preflight(open_node, "https://evil.example").status_code == 400
    response = open_node.http.get("/v1/offices", headers={"origin": "https://evil.example"})
    assert "access-control-allow-origin" not in response.headers


def test_errors_are_shown_to_allowed_pages(open_node: RunningNode) -> None:
    response = open_node.http.get("/v1/me", headers={"origin": PAGE})
    assert response.status_code == 401
    assert response.headers["access-control-allow-origin"] == PAGE
    assert "WWW-Authenticate" in response.headers["access-control-expose-headers"]


def test_no_origin_is_allowed_by_default(shared_node: RunningNode) -> None:
    assert preflight(shared_node, PAGE).status_code == 405
    assert "access-control-allow-origin" not in shared_node.http.get("/v1/offices", headers={"origin": PAGE}).headers


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The origin of a web server for the files of a folder."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@contextmanager
def browsing(url: str) -> Iterator[Page]:
    """A page in a real browser. Errors of its script fail the test."""
    errors: list[object] = []
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        page = browser.new_page()
        page.on("pageerror", lambda error: errors.append(error))
        page.goto(url)
        yield page
        browser.close()
    assert errors == []


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_a_page_of_another_origin_subscribes_and_reads_letters(tmp_path: Path) -> None:
    """With the program of docs/http-api.md. After a restart of the node it goes on, and repeats no letter."""
    (program,) = (block.code for block in blocks(ROOT / "docs/http-api.md") if block.language == "js")
    data, pages = tmp_path / "data", tmp_path / "pages"
    pages.mkdir()
    with served(pages) as origin, ExitStack() as browser:
        with running_node(data, cors_origins=[origin]) as node:
            anna = node.subscriber()
            code = program.replace("https://node.example:8080", node.url).replace("the token of anna", str(anna.token))
            code = code.replace("console.log(letter)", "shown.push(letter.event.id)")
            html = f"<!doctype html><script>var shown = []</script><script type=module>{code}</script>"
            (pages / "index.html").write_text(html)
            page = browser.enter_context(browsing(origin))
            until(lambda: [one.id for one in anna.subscriptions()] == ["fires"], "the subscription")
            leave(data, 1, ("anna", 1, "a"), ("anna", 2, "b"))
            page.wait_for_function("shown.length == 2", timeout=15_000)
        with running_node(data, cors_origins=[origin], port=int(node.url.rpartition(":")[2])):
            leave(data, 2, ("anna", 3, "c"))
            page.wait_for_function("shown.length == 3", timeout=15_000)
            assert page.evaluate("shown") == ["a", "b", "c"]


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_docs_resolve_references_to_components(tmp_path: Path) -> None:
    """An operation is shown with its examples and the schemas of its request and response."""
    with running_node(tmp_path) as node, browsing(f"{node.url}/docs") as page:
        operation = page.locator("#operations-subscriptions-add_subscriptions")
        operation.get_by_role("button").first.click()
        expect(operation).to_contain_text("All events with a term inside a box")
        operation.get_by_text("Schema", exact=True).first.click()
        expect(operation).to_contain_text("crosses_antimeridian")
        assert page.get_by_text("Could not resolve reference").count() == 0
        assert page.get_by_text("Resolver error").count() == 0
