"""Variants of the protocol with one bug each, which the checks must find."""
