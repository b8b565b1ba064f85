"""What tasks do with events, with Spark or without, and what they count."""
