"""Publish/subscribe that follows you."""

__version__ = "0.1.0"
