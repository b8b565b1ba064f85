"""A folder for PYTHONPATH of Spark's Python processes: Python imports `sitecustomize` from it when it starts."""
