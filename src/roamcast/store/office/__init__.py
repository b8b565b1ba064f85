"""The store of a post office: SQL and in-memory adapters."""
