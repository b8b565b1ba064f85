"""A node: one domain's server, with registry, intake, post office and page."""
