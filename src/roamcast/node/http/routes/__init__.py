"""What the node answers to, one module for each noun."""
