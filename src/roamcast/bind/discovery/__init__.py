"""Sources of other nodes: standing requests, announcements and demand."""
