"""Simple versions of the matcher, its workers and the office store. Experiments and tests run or compare with them."""
