"""Partitioners: which worker holds which subscriptions. One module for each way; all are exact."""
