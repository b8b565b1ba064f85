"""From matches to numbered letters."""
