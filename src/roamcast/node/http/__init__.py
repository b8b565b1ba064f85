"""HTTP: app, schemas, routes and the page."""
