"""The Structured Streaming query: source, session, process."""
