"""Who may do what: tokens, proofs and signatures."""
