"""Post offices: letters, mailboxes, what was received."""
