"""Field nodes and mules on a faulty radio."""
