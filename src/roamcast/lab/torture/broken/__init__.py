"""Parts of an office that are wrong in one way each. The first line of each says which."""
