"""What all response bodies share."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, WithJsonSchema

__all__ = ["Attributes", "ResponseModel", "Time"]

Time = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
"""A time in UTC, as ISO 8601."""

Attributes = dict[str, str | int | float | bool]


class ResponseModel(BaseModel):
    """A response has all fields of its model, unless one says otherwise."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)
