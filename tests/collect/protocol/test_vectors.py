"""The test vectors of docs/collect-protocol.md are what this implementation reads and writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from field_vectors import PATH, describe, make_sensor, make_vectors

from roamcast.collect.protocol.codec import decode, encode
from roamcast.collect.protocol.frames import FRAME_BYTES, decode_frame, encode_frame
from roamcast.errors import InputError

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[3] / PATH).read_text("utf-8"))


def test_the_file_is_what_the_code_writes() -> None:
    """Otherwise the format has changed: increase its version, and write the file again."""
    assert json.loads(json.dumps(make_vectors())) == VECTORS


@pytest.mark.parametrize("vector", VECTORS["frames"], ids=lambda vector: vector["frame"]["type"])
def test_frames(vector: dict[str, Any]) -> None:
    frame = decode_frame(bytes.fromhex(vector["hex"]))
    assert json.loads(json.dumps(describe(frame))) == vector["frame"]
    assert encode_frame(frame).hex() == vector["hex"]


@pytest.mark.parametrize("vector", VECTORS["messages"], ids=lambda vector: vector["message"]["type"])
def test_messages(vector: dict[str, Any]) -> None:
    message = decode(bytes.fromhex(vector["hex"]), VECTORS["now"])
    assert json.loads(json.dumps(describe(message))) == vector["message"]
    assert encode(message, VECTORS["now"]).hex() == vector["hex"]


@pytest.mark.parametrize("vector", VECTORS["messages"], ids=lambda vector: vector["message"]["type"])
def test_times_are_relative(vector: dict[str, Any]) -> None:
    """On another clock a message has the same bytes."""
    message = decode(bytes.fromhex(vector["hex"]), 5_000)
    assert encode(message, 5_000).hex() == vector["hex"]


@pytest.mark.parametrize("vector", VECTORS["not_frames"], ids=lambda vector: vector["why"])
def test_what_is_not_a_frame_is_refused(vector: dict[str, str]) -> None:
    with pytest.raises(InputError):
        decode_frame(bytes.fromhex(vector["hex"]))


def test_a_sensor_speaks_as_in_the_conversation() -> None:
    """The same frames at the same times."""
    sensor = make_sensor()
    for step in VECTORS["conversation"]:
        if "senses" in step:
            sensor.sense(bytes.fromhex(step["senses"]), step["at"])
        elif "hears" in step:
            sensor.hear(bytes.fromhex(step["hears"]), step["at"])
        else:
            sensor.wake(step["at"])
        assert [frame.hex() for frame in sensor.take_frames()] == step["sends"]


def test_no_frame_is_larger_than_small_radios_can_carry() -> None:
    sent = [frame for step in VECTORS["conversation"] for frame in step["sends"]]
    assert max(len(frame) // 2 for frame in sent) == FRAME_BYTES == 102
