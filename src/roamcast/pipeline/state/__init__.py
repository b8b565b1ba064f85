"""The state of a pipeline: tables, manifests, lookups."""
