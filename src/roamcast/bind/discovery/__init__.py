"""Discovery of other nodes' sources: standing requests, announcements and demand."""
