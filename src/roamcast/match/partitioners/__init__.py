"""Partitioners: they decide which workers hold a subscription."""
