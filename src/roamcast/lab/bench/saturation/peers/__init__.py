"""What a user could take instead of roamcast, on the same events and subscriptions. Not roamcast's own code."""
