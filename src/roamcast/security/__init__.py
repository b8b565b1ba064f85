"""Tokens, move proofs, and signatures between offices."""
