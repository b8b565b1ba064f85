"""Post offices: mailboxes, addressing, posting, migration and the outbox."""
