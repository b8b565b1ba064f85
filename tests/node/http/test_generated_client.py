"""A client that a common generator makes from the OpenAPI document."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import openapi_generator_cli
import pytest
from nodes import RunningNode, leave, running_node, until

from roamcast.pipeline.query.session import find_java

GENERATOR = Path(openapi_generator_cli.__file__).with_name("openapi-generator.jar")
PARTS = "models,apis,supportingFiles,modelDocs=false,apiDocs=false,modelTests=false,apiTests=false"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with running_node(tmp_path_factory.mktemp("data")) as node:
        yield node


@pytest.fixture(scope="module")
def generated(
    node: RunningNode, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[ModuleType]:
    """The package that the generator makes of the document of a running node."""
    folder = tmp_path_factory.mktemp("generated")
    (folder / "openapi.json").write_text(json.dumps(node.http.get("/openapi.json").json()))
    command = [
        str(find_java() / "bin" / "java"),
        "-XX:TieredStopAtLevel=1",
        "-jar",
        str(GENERATOR),
        "generate",
        "-g",
        "python",
        "-o",
        str(folder),
    ]
    options = ["-i", str(folder / "openapi.json"), "--package-name", "generated_api", "--global-property", PARTS]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield importlib.import_module("generated_api")
    for name in [name for name in sys.modules if name.split(".")[0] == "generated_api"]:
        del sys.modules[name]


def test_types_have_the_names_of_the_models(generated: ModuleType) -> None:
    """Because references lead to components."""
    for name in ("EntityIn", "SubscriptionIn", "EventIn", "SubscriptionOut", "LetterOut", "PulledOut", "ErrorOut"):
        assert hasattr(generated, name)


def test_a_generated_client_does_everything(node: RunningNode, generated: ModuleType) -> None:
    """Register, subscribe, publish, pull and acknowledge."""
    api: Any = generated

    def connect(token: str | None = None) -> Any:
        return api.ApiClient(api.Configuration(host=node.url, access_token=token))

    entities = api.EntitiesApi(connect())
    anna = connect(entities.register_subscriber(api.EntityIn(id="anna")).token)
    fields = api.EntityIn(id="mic", attributes={"floor": 2}, x=8.5, y=53.5)
    mic = connect(entities.register_source(api.RegisterSourceRequest(fields)).token)
    me = api.EntitiesApi(mic).show_me()
    assert (me.kind, me.attributes["floor"].actual_instance, me.position.x, me.next_seq) == ("source", 2, 8.5, 1)

    subscriptions = api.SubscriptionsApi(anna)
    fires = api.SubscriptionIn(id="fires", box=[8, 53, 9, 54], terms=["fire"])
    assert subscriptions.add_subscriptions(api.AddSubscriptionsRequest(fires)).id == "fires"
    (listed,) = subscriptions.list_subscriptions().subscriptions
    assert (listed.id, listed.state, listed.why) == ("fires", "active", None)
    event = api.EventIn(terms=["fire"], readings={"temperature": 81.5})
    assert subscriptions.explain_match("fires", api.EventIn(x=8.5, y=53.5, terms=["fire"])).subscription == "fires"

    published = api.EventsApi(mic).publish_events(api.PublishEventsRequest(event))
    assert (published.accepted, published.first_seq) == (1, 1)
    published = api.EventsApi(mic).publish_events(api.PublishEventsRequest([event, event]))
    assert (published.accepted, published.last_seq) == (2, 3)

    leave(node.data, 1, ("anna", 1, "mic:1"), ("anna", 2, "mic:2"))
    mailbox = api.MailboxApi(anna)
    until(lambda: mailbox.pull_letters(wait=1).waiting == 2, "the letters")
    letters = [letter.actual_instance for letter in mailbox.pull_letters(limit=10).letters]
    assert [letter.event.id for letter in letters] == ["mic:1", "mic:2"]
    assert letters[0].event.time.year == 2026
    assert mailbox.acknowledge_letters(api.AckIn(through=letters[-1].offset)).acknowledged == 2
    assert mailbox.pull_letters().letters == []


def test_a_generated_client_is_a_gateway(node: RunningNode, generated: ModuleType) -> None:
    """It registers sources with its token, and publishes for them."""
    api: Any = generated
    anybody = api.EntitiesApi(api.ApiClient(api.Configuration(host=node.url)))
    token = anybody.register_gateway(api.GatewayIn(id="hub")).token
    hub = api.ApiClient(api.Configuration(host=node.url, access_token=token))
    entities = api.EntitiesApi(hub)
    source = entities.register_source(api.RegisterSourceRequest(api.EntityIn(id="meter-1", x=8.5, y=53.5)))
    assert (source.token, source.gateway) == (None, "hub")
    rows = [api.EntityIn(id="meter-1"), api.EntityIn(id="meter-2", x=8.5, y=53.5)]
    results = entities.register_source(api.RegisterSourceRequest(rows)).actual_instance
    assert (results.added, results.existing, results.refused) == (1, 1, 0)
    assert [source.id for source in entities.list_sources().sources] == ["meter-1", "meter-2"]
    events = [api.EventIn(source=f"meter-{n}", readings={"level": 1.5}) for n in (1, 2)]
    published = api.EventsApi(hub).publish_events(api.PublishEventsRequest(events))
    assert [each.source for each in published.sources] == ["meter-1", "meter-2"]
    assert entities.show_demand().sources.keys() == {"meter-1", "meter-2"}
    entities.unregister(sources=True)


def test_errors_have_their_type(node: RunningNode, generated: ModuleType) -> None:
    api: Any = generated
    with pytest.raises(api.exceptions.ApiException) as refused:
        api.EntitiesApi(api.ApiClient(api.Configuration(host=node.url, access_token="wrong"))).show_me()
    assert refused.value.status == 401
    assert isinstance(refused.value.data, api.ErrorOut)
    assert refused.value.data.error.code == "unauthenticated"
