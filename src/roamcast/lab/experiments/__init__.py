"""The papers' experiments, rerun: one package per paper."""
