"""Bind: which source each subscription listens to, kept right while everything moves."""
