"""What a node keeps: its registry and its mailboxes."""
