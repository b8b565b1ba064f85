"""The index: immutable segments of subscriptions, and the search over them."""
