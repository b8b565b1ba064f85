"""Spatial search: the sources that each subscription is bound to while everything moves."""
