"""What events between domains cost."""
