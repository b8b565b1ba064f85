"""The papers' experiments, rerun: one module per paper."""
