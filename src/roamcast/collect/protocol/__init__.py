"""The protocols of field nodes and mules, without input or output: CET, direct gathering, Epidemic, Spray-and-Wait."""
