"""Matching: events with a point and terms, subscriptions with a box and terms."""
