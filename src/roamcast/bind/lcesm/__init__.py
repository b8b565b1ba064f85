"""LCESM: requirement manager, binding manager, agents and states."""
