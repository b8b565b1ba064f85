"""The compiled part of binding: what is done for each of millions of moves."""
