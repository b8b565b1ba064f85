"""Spatial search: which source each subscription is bound to while everything moves."""
