"""Simple versions of matcher, workers, registry and office store. Experiments and tests run or compare with them."""
