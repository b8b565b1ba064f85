"""Other nodes: signed HTTP, membership, discovery."""
