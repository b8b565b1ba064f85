"""Response bodies: the JSON that the API returns, one module per resource. Request bodies are in `node/schemas.py`."""
